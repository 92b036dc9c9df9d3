"""The inbox as a whole: real servers, workers and a database, a model that writes down each call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.inbox.office import Office, Record
from tests.support.nursery import QuickStack
from tests.support.upstream import Upstream, running_upstream


def pytest_configure(config: pytest.Config) -> None:
    """Our marker."""
    config.addinivalue_line("markers", "office(workers=1, **settings): the processes of an inbox test")


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """What the scripted model was asked."""
    return Record(tmp_path / "record")


@pytest.fixture
async def office(record: Record, request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    """One server, and as many workers as the test says with `@pytest.mark.office(workers=2, lease_s=1)`; what stands
    beside `workers` are settings."""
    mark = request.node.get_closest_marker("office")
    settings = {"workers": 1, "lease_s": 2, "scripted_record": record.folder, **(mark.kwargs if mark else {})}
    async with QuickStack(**settings) as stack:
        client = Redis.from_url(stack.valkey.url)
        try:
            yield Office(stack, client)
        finally:
            await client.aclose()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A model server that misbehaves as asked."""
    with running_upstream() as made:
        yield made
