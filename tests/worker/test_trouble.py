"""Redis goes away, comes back, forgets its scripts, kills connections, is full (G14, G15)."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.support.valkey import Valkey
from tests.support.wait import until
from tests.worker.crew import Crew, expected
from tests.worker.test_stops import Watched
from unbroken.tasks.connection import connect
from unbroken.tasks.kind import Kind, Run, Text, Update
from unbroken.tasks.settings import Settings
from unbroken.worker.writer import UNFLUSHED_MAX


@pytest.fixture
def own_valkey() -> Iterator[Valkey]:
    """One that may be stopped, with the append-only file of the product."""
    with Valkey(aof=True) as server:
        yield server


@pytest.fixture
async def own(own_valkey: Valkey, tmp_path: Path) -> AsyncIterator[Crew]:
    """A crew around it."""
    client = connect(own_valkey.url, name="test")  # patient, since its connections are killed too
    settings = Settings(
        redis_url=own_valkey.url,
        backend="scripted",
        lease_s=1,
        poll_s=0.2,
        drain_s=5,
        checkpoint_s=0.3,
        data_dir=tmp_path,
    )
    yield Crew(client, settings)
    await client.aclose()


async def _reaper(crew: Crew) -> None:
    """What every server does: reap ten times in a lease."""
    while True:
        try:
            await crew.store.reap()
        except Exception as error:
            logging.getLogger("test").debug("reap: %s", error)
        await asyncio.sleep(0.1)


async def test_redis_is_killed_and_comes_back_in_the_middle(
    own: Crew, own_valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await own.text(900, rate=300)
    backend = Watched()
    async with own.working(backend=backend) as worker:
        for length in (600, 2_000, 4_000):
            await own.long(task_id, length)
            own_valkey.kill()
            await asyncio.sleep(0.7)
            own_valkey.start()
        reaper = asyncio.create_task(_reaper(own))
        task = await own.reach(task_id, "completed")
        reaper.cancel()
        assert worker.claims == 1
    await own.check_text(task_id, expected(900))
    assert (task.num("attempts"), task.num("losses")) == (1, 0)
    assert sum(count for _, count in backend.made) == 900
    said = [record for record in caplog.records if "trying again" in record.message or "no answer" in record.message]
    assert len(said) < 30, "an outage is one line for each part, not one for each try"


async def test_redis_stands_still_for_longer_than_a_lease(own: Crew, own_valkey: Valkey) -> None:
    """Afterwards every lease is in the past at once, and nobody is declared lost."""
    ids = [await own.text(500, rate=100, seed=n) for n in range(4)]
    async with own.working() as worker:
        reaper = asyncio.create_task(_reaper(own))
        for task_id in ids:
            await own.long(task_id, 300)
        own_valkey.signal(signal.SIGSTOP)
        await asyncio.sleep(2.5)
        own_valkey.signal(signal.SIGCONT)
        for n, task_id in enumerate(ids):
            task = await own.reach(task_id, "completed")
            assert (task.num("attempts"), task.num("losses")) == (1, 0)
            await own.check_text(task_id, expected(500, seed=n))
        reaper.cancel()
        assert worker.claims == 4


async def test_connections_are_killed_all_the_time(own: Crew) -> None:
    """Row 58: the worker's connections are cut every 0.3 s."""
    task_id = await own.text(1_500, rate=400)

    async def killer() -> None:
        while True:
            await asyncio.sleep(0.3)
            try:
                await own.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                await own.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                await own.redis.script_flush()
            except (RedisConnectionError, OSError):
                continue

    async with own.working() as worker:
        kill, reaper = asyncio.create_task(killer()), asyncio.create_task(_reaper(own))
        task = await own.reach(task_id, "completed", within=40)
        kill.cancel()
        reaper.cancel()
        assert worker.claims == 1
    await own.check_text(task_id, expected(1_500))
    assert (task.num("attempts"), task.num("errors")) == (1, 0)


async def test_in_an_outage_the_model_is_held_and_goes_on_afterwards(own: Crew, own_valkey: Valkey) -> None:
    """Backpressure: what waits for Redis is bounded."""
    made = 0

    class Flood(Kind):
        name = "flood"

        async def run(self, run: Run) -> AsyncIterator[Update]:
            nonlocal made
            for n in range(4_000):
                made += 1
                yield Text(f"{n:0999d}\n", count=0)
                if n == 3:
                    await asyncio.sleep(0.3)
                elif n > 3:
                    await asyncio.sleep(0)

    own.kinds = {"flood": Flood()}
    task_id = await own.submit("flood", {})
    async with own.working():
        await own.long(task_id, 1_000)
        own_valkey.kill()
        held = await until(lambda: made > 10 and made, "the flood to begin")
        while True:  # until it stands still
            await asyncio.sleep(0.5)
            if made == held:
                break
            held = made
        assert held * 1_000 < 3 * UNFLUSHED_MAX
        own_valkey.start()
        await own.reach(task_id, "completed")
    await own.check_text(task_id, "".join(f"{n:0999d}\n" for n in range(4_000)))


async def test_a_full_redis_pauses_the_task_with_everything_kept(own: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbroken.worker.writer.FULL_FOR_S", 0.5)
    task_id = await own.text(3_000, rate=300)
    backend = Watched()
    async with own.working(backend=backend):
        await own.long(task_id, 800)
        await own.redis.config_set("maxmemory", "1mb")
        task = await own.reach(task_id, "paused")
        await own.redis.config_set("maxmemory", "0")
    assert task.text("reason") == "checkpoint_failed"
    [(_, count)] = backend.made
    assert await own.folded(task_id) == expected(count), "also what could not be appended"
    assert task.num("length") == len(expected(count))
    await own.store.recover(task_id, "local", actor="me", recovery_id="r")
    async with own.working(backend=backend):
        await own.reach(task_id, "completed")
    await own.check_text(task_id, expected(3_000))


async def test_a_shutdown_in_an_outage_ends_in_time_and_the_task_is_found_again(own: Crew, own_valkey: Valkey) -> None:
    task_id = await own.text(600, rate=200)
    async with own.working(drain_s=1):
        await own.long(task_id, 500)
        own_valkey.kill()
    own_valkey.start()
    reaper = asyncio.create_task(_reaper(own))
    async with own.working():
        await own.reach(task_id, "completed")
    reaper.cancel()
    await own.check_text(task_id, expected(600))


async def test_a_stop_in_the_middle_of_a_claim_is_quick(own: Crew, own_valkey: Valkey) -> None:
    task_id = await own.text(50)
    own_valkey.signal(signal.SIGSTOP)
    began = asyncio.get_running_loop().time()
    async with own.working(drain_s=1):
        await asyncio.sleep(0.3)
    assert asyncio.get_running_loop().time() - began < 10
    own_valkey.signal(signal.SIGCONT)
    async with own.working():
        reaper = asyncio.create_task(_reaper(own))
        await own.reach(task_id, "completed")
        reaper.cancel()
    await own.check_text(task_id, expected(50))


async def test_a_worker_starts_before_redis_does(own: Crew, own_valkey: Valkey) -> None:
    task_id = await own.text(50)
    own_valkey.kill()
    async with own.working():
        await asyncio.sleep(0.5)
        own_valkey.start()
        await own.reach(task_id, "completed")
    await own.check_text(task_id, expected(50))
