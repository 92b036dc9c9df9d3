"""A served application on a real Valkey, and a desk that plays the worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from tests.server.site import Site, running
from tests.support.desk import Desk
from unbroken.tasks.settings import Settings


@pytest.fixture
def settings(valkey_url: str, tmp_path: Path) -> Settings:
    """Short times."""
    return Settings(redis_url=valkey_url, lease_s=2, data_dir=tmp_path, submits_per_minute=0)


@pytest.fixture
async def desk(redis: Redis, settings: Settings) -> Desk:
    """The store and any number of workers."""
    return Desk(redis, settings)


@pytest.fixture
def site(desk: Desk, settings: Settings) -> Iterator[Site]:
    """A server; the desk's database is empty when it starts."""
    with running(settings) as site:
        yield site


@pytest.fixture
async def client(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """Someone on this machine."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    async with httpx.AsyncClient(base_url=site.url, timeout=20, trust_env=False, limits=limits) as client:
        yield client
