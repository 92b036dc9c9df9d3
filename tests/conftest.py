"""Fixtures for every test: real servers only, clean for each test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis

from tests import turns
from tests.support.valkey import Valkey

# How many examples hypothesis makes up: a few in each run of the suite, many with --hypothesis-profile=long. No
# deadlines: how long an example takes says nothing on a machine that runs other tests beside it.
_plain = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _plain, max_examples=40)
settings.register_profile("long", _plain, max_examples=2_000)
settings.load_profile("suite")

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, say in which order tests are given out."""
    if turns.several(config):
        items.sort(key=lambda item: turns.turn(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> turns.Turns:
    """... and which of them go to one process."""
    return turns.Turns(config, log)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Whatever depends on the database's own answers runs on Valkey and on Redis itself."""
    place = metafunc.definition.path.relative_to(HERE).as_posix()
    if place.startswith("store/") or place == "faults/test_2_lost_replies.py":
        metafunc.parametrize("engine", ["valkey", "redis"], indirect=True, scope="session")


@pytest.fixture(scope="session", autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which server every `Valkey` runs: "redis" is the machine's redis-server."""
    name = str(getattr(request, "param", "valkey"))
    with pytest.MonkeyPatch.context() as patch:
        if name == "redis":
            found = shutil.which("redis-server")
            assert found, "these tests run on Redis, too: install redis-server"
            patch.setenv("UNBROKEN_TEST_REDIS_SERVER", found)
        yield name


@pytest.fixture(scope="session")
def valkey(engine: str) -> Iterator[Valkey]:
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
