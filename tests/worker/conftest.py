"""A store, and workers with small times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.support.llama import Llama, running_llama
from tests.worker.crew import Crew
from unbroken.tasks.settings import Settings


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    """One model server for all tests that do not stop it; xdist runs those in one process (tests/conftest.py)."""
    with running_llama(tmp_path_factory.mktemp("llama")) as running:
        yield running


@pytest.fixture
async def crew(redis: Redis, valkey_url: str, tmp_path: Path) -> Crew:
    """Everything on the shared server."""
    settings = Settings(
        redis_url=valkey_url,
        backend="scripted",
        lease_s=2,
        poll_s=0.2,
        drain_s=5,
        backoff_base_s=0.05,
        backoff_cap_s=0.2,
        checkpoint_s=0.3,
        data_dir=tmp_path,
    )
    return Crew(redis, settings)
