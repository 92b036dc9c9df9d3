"""Fixtures for every test: real servers only, clean for each test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis

from tests.support.valkey import Valkey

# How many examples hypothesis makes up: a few in each run of the suite, many with --hypothesis-profile=long. No
# deadlines: how long an example takes says nothing on a machine that runs other tests beside it.
_plain = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _plain, max_examples=40)
settings.register_profile("long", _plain, max_examples=2_000)
settings.load_profile("suite")

# What takes longest starts first, so that several processes (pytest -n 4) end at about the same time.
ORDER = (
    *("chaos", "deploy", "worker", "journeys", "browser", "faults"),
    *("inbox", "bench", "server", "store", "cli", "core"),
)
# Tests of one file that share what takes long to start: a whole site, a loaded model, a stack of processes.
TOGETHER = {
    "deploy/test_as_deployed.py": "deployed",
    "journeys/test_1_reading.py": "reading",
    "journeys/test_2_workers_die.py": "workers die",
    "journeys/test_3_recover.py": "recover",
    "journeys/test_4_submitting.py": "submitting",
    "journeys/test_6_local_model.py": "local model",
    "journeys/test_7_command_line.py": "command line",
    "worker/test_backend_local.py": "model",
    "worker/test_backend_openai_llama.py": "model",
}
HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say which tests run in one process; with several processes also in which order they are given out."""
    for item in items:
        if group := TOGETHER.get(item.path.relative_to(HERE).as_posix()):
            item.add_marker(pytest.mark.xdist_group(group))
    if config.getoption("dist", "no") != "no" or hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, int]:
    """Groups first: each is one long piece of work. Then by folder; an unknown one comes last."""
    folder = item.path.relative_to(HERE).parts[0]
    grouped = item.get_closest_marker("xdist_group") is not None
    return not grouped and folder != "chaos", ORDER.index(folder) if folder in ORDER else len(ORDER)


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
