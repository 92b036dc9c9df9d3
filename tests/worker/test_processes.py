"""Real worker processes: killed, frozen, told to stop."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from tests.support.nursery import QuickStack
from tests.support.processes import Process, Stack
from tests.support.wait import until
from tests.worker.crew import Crew, expected
from tests.worker.orders import batch, result
from unbroken.tasks import keys
from unbroken.tasks.record import Task
from unbroken.tasks.result import encode_batch
from unbroken.tasks.settings import Settings
from unbroken.tasks.submit import NewTask


@asynccontextmanager
async def workers(count: int = 2, **settings: Any) -> AsyncIterator[tuple[Stack, Crew]]:
    """Worker processes without a server."""
    async with QuickStack(servers=0, workers=count, poll_s=0.2, **settings) as stack:
        client = Redis.from_url(stack.redis_url)
        try:
            yield stack, Crew(client, Settings(redis_url=stack.redis_url, lease_s=2))
        finally:
            await client.aclose()


def holder(stack: Stack, task: Task) -> Process:
    """The process that runs the task."""
    name = task.text("worker")
    return next(worker for worker in stack.workers if f"-{worker.pid}-" in name)


async def test_kill_9_again_and_again_and_the_text_is_exact(tmp_path: Path) -> None:
    """G1, G8, G9: what reached the log is not made again."""
    async with workers(2, scripted_record=tmp_path) as (stack, crew):
        task_id = await crew.text(900, rate=250)
        length = 0
        for _ in range(3):
            task = await crew.long(task_id, length + 1_000)
            length = task.num("length")
            victim = holder(stack, task)
            victim.kill()
            stack.workers.remove(victim)
            await stack.start_worker()
            epoch = task.num("epoch")
            await until(partial(_newer, crew, task_id, epoch), "another worker to take over", within=4 + 10)
        task = await crew.reach(task_id, "completed")
        await crew.check_text(task_id, expected(900))
        assert (task.num("attempts"), task.num("losses"), task.num("errors")) == (4, 3, 0)
        log = [data for name, data in await crew.log(task_id) if name == "chunk"]
        at = 0
        for chunk in log:
            assert chunk["offset"] == at, "no viewer was ever taken back"
            at += len(chunk["text"])


async def _newer(crew: Crew, task_id: str, epoch: int) -> bool:
    return (await crew.look(task_id)).num("epoch") > epoch


async def test_a_frozen_worker_that_comes_back_writes_nothing() -> None:
    """G6: SIGSTOP, another takes over, SIGCONT."""
    async with workers(2) as (stack, crew):
        task_id = await crew.text(2_000, rate=200)
        task = await crew.long(task_id, 500)
        zombie = holder(stack, task)
        zombie.freeze()
        await until(lambda: _newer(crew, task_id, task.num("epoch")), "another worker to take over")
        zombie.thaw()
        await until(lambda: "no longer ours" in zombie.tail(), "the zombie to notice")
        await crew.long(task_id, 4_000)
        raw = await crew.store.events(task_id, "0-0", count=100_000)
        epochs = [int(event_id.split("-")[0]) for event_id, _, _ in raw]
        assert epochs == sorted(epochs), "epochs never interleave"
        assert len(set(epochs)) == 3, "created, first run, second run"
        await crew.reach(task_id, "completed")
        await crew.check_text(task_id, expected(2_000))
        assert zombie.alive


async def test_sigterm_hands_over_and_exits_with_0() -> None:
    async with workers(1) as (stack, crew):
        task_id = await crew.text(600, rate=200, max_attempts=1, max_crashes=1)
        for length in (500, 1_200, 1_900):
            await crew.long(task_id, length)
            [worker] = stack.workers
            assert await worker.stop(within=10) == 0
            task = await crew.look(task_id)
            assert task.state.value == "recovering"
            assert task.checkpoint is not None
            assert task.checkpoint.offset == task.num("length")
            stack.workers.clear()
            await stack.start_worker()
        task = await crew.reach(task_id, "completed")
        await crew.check_text(task_id, expected(600))
        assert (task.num("errors"), task.num("crashes"), task.num("interruptions")) == (0, 0, 3)


STUBBORN = """
import asyncio, time
from unbroken.tasks.kind import Kind, Text, Checkpoint
from pydantic import BaseModel

class Stubborn(Kind):
    name = "stubborn"
    class Input(BaseModel):
        pass
    async def run(self, run):
        yield Text("kept")
        yield Checkpoint({"n": 1})
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

class Deaf(Kind):
    name = "deaf"
    class Input(BaseModel):
        pass
    def run(self, run):
        yield Text("kept")
        yield Checkpoint({"n": 1})
        time.sleep(3600)
"""


async def test_kinds_that_do_not_stop_cannot_keep_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C5: after the grace it exits anyway, with the task handed over."""
    (tmp_path / "stubborn_kinds.py").write_text(STUBBORN)
    async with workers(0, drain_s=2) as (stack, crew):
        stack.settings["kinds"] = "stubborn_kinds"
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        worker = await stack.start_worker()
        ids = []
        for name in ("stubborn", "deaf"):
            task, _ = await crew.store.create(NewTask(owner="local", kind=name, input={}, unit="steps"), actor="local")
            ids.append(task.id)
        for task_id in ids:
            await crew.long(task_id, 4)
        assert await worker.stop(within=10) == 0
        for task_id in ids:
            task = await crew.look(task_id)
            assert (task.state.value, task.num("interruptions")) == ("recovering", 1)
            assert task.checkpoint is not None


async def test_a_batch_killed_at_random_sets_each_item_once(tmp_path: Path) -> None:
    """G13: finished items are never run again; a half-done one at most from its last save."""
    async with workers(2, scripted_record=tmp_path, checkpoint_s=0.2) as (stack, crew):
        task_id = await crew.submit("batch", batch(40, rate=60))
        finished: set[int] = set()
        began_again: Counter[int] = Counter()
        for share in (6, 14, 22):
            await until(partial(_count, crew, task_id, share), f"{share} items")
            victim = holder(stack, await crew.look(task_id))
            finished |= set(await crew.store.items(task_id))
            calls_before = len((tmp_path / "calls.jsonl").read_text().splitlines())
            victim.kill()
            stack.workers.remove(victim)
            await stack.start_worker()
            epoch = (await crew.look(task_id)).num("epoch")
            await until(partial(_newer, crew, task_id, epoch), "another worker to take over")
            for line in (tmp_path / "calls.jsonl").read_text().splitlines()[calls_before:]:
                index = int(json.loads(line)["request_id"].rsplit("-", 1)[1])
                began_again[index] += index in finished
        await crew.reach(task_id, "completed", within=40)
        assert not +began_again, "no finished item was called again"
        whole = json.loads(encode_batch(await crew.store.items(task_id)))["items"]
        assert [item["result"] for item in whole] == [result(i) for i in range(40)]
        set_events = [data["index"] for name, data in await crew.log(task_id) if name == "item"]
        assert sorted(set_events) == list(range(40))


async def _count(crew: Crew, task_id: str, share: int) -> bool:
    return len(await crew.store.items(task_id)) >= share


async def test_poison_pauses_and_progress_is_never_punished() -> None:
    """A task that kills its worker at the same place ends paused; the others do not notice."""
    async with workers(1) as (stack, crew):
        poison = await crew.text(100, rate=100, fail="crash", fail_at=50, fail_times=99, max_crashes=2)

        async def paused() -> bool:
            if not stack.workers[-1].alive:
                await stack.start_worker()
            return await crew.state(poison) == "paused"

        await until(paused, "the poison to be put aside", within=100)
        task = await crew.reach(poison, "paused")
        assert task.text("reason") == "worker_lost"
        assert task.num("losses") >= 2
        if not stack.workers[-1].alive:
            await stack.start_worker()
        other = await crew.text(100)
        await crew.reach(other, "completed")
        text = await crew.folded(poison)
        assert expected(50).startswith(text)
        assert len(text) > len(expected(40)), "only what a kill -9 took from a buffer is missing"


async def test_the_worker_leaves_nothing_behind_in_redis() -> None:
    """G17: what is left has a lifetime, or belongs to the finished task."""
    async with workers(1) as (stack, crew):
        task_id = await crew.text(50)
        await crew.reach(task_id, "completed")
        await stack.workers[0].stop()
        left = {key.decode() for key in await crew.redis.keys("*")}
        assert keys.key("leases") not in left
        for key in left:
            if ":worker:" in key or ":tally:" in key:
                assert await crew.redis.pttl(key) > 0
