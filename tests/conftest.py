"""Fixtures for every test: real servers only, clean for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from tests.support.valkey import Valkey


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """One real server for the whole session; do not stop it, start a `Valkey` of your own for that."""
    with Valkey() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_url(valkey: Valkey) -> str:
    """Its URL. Tests that use it alone see what other tests left; `redis` empties it."""
    return valkey.url


@pytest.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    """A client of an empty server; bytes in, bytes out."""
    client = Redis.from_url(valkey_url)
    try:
        await client.flushall()
        await client.script_flush()
        yield client
    finally:
        await client.aclose()
