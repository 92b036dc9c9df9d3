"""A server without workers, and a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.cli.desk import Terminal
from tests.server.site import Site, running
from tests.support.desk import Desk
from unbroken.tasks.settings import Settings


@pytest.fixture
def settings(valkey_url: str, tmp_path: Path) -> Settings:
    """Short times."""
    return Settings(redis_url=valkey_url, lease_s=2, data_dir=tmp_path, submits_per_minute=0)


@pytest.fixture
async def desk(redis: Redis, settings: Settings) -> Desk:
    """The store and any number of workers, in an empty database."""
    return Desk(redis, settings)


@pytest.fixture
def site(desk: Desk, settings: Settings) -> Iterator[Site]:
    """A server."""
    with running(settings) as site:
        yield site


@pytest.fixture
def terminal(
    site: Site, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    """The command line, told where the server and its Redis are."""
    monkeypatch.setenv("UNBROKEN_URL", site.url)
    monkeypatch.setenv("UNBROKEN_REDIS_URL", settings.redis_url)
    monkeypatch.setenv("UNBROKEN_DATA_DIR", str(settings.data_dir))
    return Terminal(site, capsys)
