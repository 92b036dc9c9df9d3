"""Workers that are stopped under load, blocked, starved, and killed by what they run."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.chaos.checker import calls_of, log_of, said_again
from tests.faults.ground import direct, leases_of, read_to_end, sound, whole
from tests.support.api import PROMPT, scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import Process, Stack
from tests.support.viewer import Viewer
from tests.support.wait import until

KINDS = "tests.support.kinds_for_faults"
STEPS = [{"name": f"s{n}", "prompt": f"part {n}"} for n in range(3)]


async def test_workers_are_stopped_under_load(tmp_path: Path) -> None:
    """SIGTERM for every worker while 16 tasks run: no attempt burnt, no token made twice, gone within the grace."""
    script = {"seed": 7, "tokens": 60, "rate": 25}
    async with (
        QuickStack(workers=2, concurrency=10, drain_s=10, scripted_record=tmp_path) as stack,
        direct(stack) as desk,
    ):
        orders: list[tuple[str, dict[str, Any]]] = [("text", scripted(tokens=200, rate=24)) for _ in range(8)]
        orders += [("batch", {"instruction": "Say:", "items": list("abcdefgh"), "scripted": script})] * 4
        orders += [("chain", {"steps": STEPS, "scripted": script})] * 4
        ids = [(await stack.api.submit(data, kind=kind))["task_id"] for kind, data in orders]
        viewers = [Viewer(stack.url, task_id) for task_id in ids]
        watching = asyncio.gather(*(viewer.follow(within=90) for viewer in viewers))
        for length in (150, 400):
            await asyncio.gather(*(viewer.seen(length) for viewer in viewers[:8]))
            old, stack.workers = stack.workers, []
            for _ in old:
                await stack.start_worker()
            assert await asyncio.gather(*(worker.stop(within=10 + 5) for worker in old)) == [0, 0]
        await watching
        for viewer in viewers:
            await whole(stack, viewer)
            task = await stack.api.task(viewer.task_id)
            assert (task["state"], task["errors"], task["crashes"]) == ("completed", 0, 0)
        calls, runs = calls_of(tmp_path / "calls.jsonl"), []
        for task_id in ids[:8]:
            log = await log_of(desk, task_id)
            runs.append(len(log.at_claim))
            assert len(calls[task_id]) == len(log.at_claim)
            for call in calls[task_id]:
                assert list(said_again(log, call, {"seed": 7, "tokens": 200}, PROMPT)) == []
        assert min(runs) >= 2, "each was handed over"
        assert max(runs) >= 3, "and some of them, which had not ended meanwhile, a second time"
        await sound(desk, ids)


async def test_blocked_and_starved_workers_keep_their_tasks() -> None:
    """G7: one kind blocks its whole process for four leases; another worker gets an eighth of its time. An idle worker
    stands by and must not get either task."""
    async with (
        QuickStack(workers=0, concurrency=1, kinds=KINDS) as stack,
        direct(stack) as desk,
    ):
        await stack.start_worker()
        blocked = (await stack.api.submit({"seconds": 8.0}, kind="stubborn"))["task_id"]
        await stack.api.until_length(blocked, 1)
        starved = await stack.start_worker()
        slow = (await stack.api.submit(scripted(tokens=300, rate=60)))["task_id"]
        await stack.api.until_length(slow, 1)
        await stack.start_worker()
        starving = asyncio.create_task(starve(starved))
        try:
            for task_id in (blocked, slow):
                task = await stack.api.until_state(task_id, "completed", within=60)
                assert (task["attempts"], task["crashes"]) == (1, 0)
                assert await leases_of(desk, task_id) == 1
        finally:
            starving.cancel()
        starved.thaw()
        assert await stack.api.text(blocked) == "before after"
        await read_to_end(stack, slow, story(tokens=300))
        await sound(desk, [blocked, slow])


async def starve(process: Process) -> None:
    """About an eighth of a processor."""
    while True:
        process.freeze()
        await asyncio.sleep(0.14)
        process.thaw()
        await asyncio.sleep(0.02)


async def test_poison_is_put_aside_and_harms_nobody() -> None:
    """It kills its worker at the same place each time: paused after its budget, with what it has. The others, whose
    workers it killed as well, end as if nothing had been."""
    async with QuickStack(workers=2, concurrency=8, kinds=KINDS) as stack, direct(stack) as desk:
        neighbours = [(await stack.api.submit(scripted(seed=n, tokens=250, rate=30)))["task_id"] for n in range(5)]
        poison = (await stack.api.submit({"upto": 99, "dies_at": 40}, kind="deadly", max_crashes=2))["task_id"]
        task = await reborn(stack, poison, "paused")
        # the first loss comes after new text, so it is the first of the budget and not beyond it
        assert (task["reason"], task["crashes"], task["errors"]) == ("worker_lost", 2, 0)
        assert task["attempts"] == 2
        assert task["length"] == len(numbers(40))
        for n, task_id in enumerate(neighbours):
            await stack.api.until_state(task_id, "completed", within=60)
            assert (await read_to_end(stack, task_id, story(seed=n, tokens=250))).rewinds == 0
        await sound(desk, [poison, *neighbours])


async def test_what_gets_on_between_its_losses_is_no_poison() -> None:
    """One number a life: it loses more workers than its budget, but never two of them at the same place."""
    async with QuickStack(workers=2, lease_s=1, kinds=KINDS) as stack, direct(stack) as desk:
        task_id = (await stack.api.submit({"upto": 4, "a_life": 1}, kind="deadly", max_crashes=2))["task_id"]
        task = await reborn(stack, task_id, "completed")
        assert (task["attempts"], task["crashes"], task["errors"]) == (4, 1, 0)
        await read_to_end(stack, task_id, numbers(4))
        await sound(desk, [task_id])


def numbers(upto: int) -> str:
    """What the kind `deadly` has said there."""
    return "".join(f"{n} " for n in range(upto))


async def reborn(stack: Stack, task_id: str, state: str) -> dict[str, Any]:
    """Start a worker for each that died, until the task is in that state; the task."""

    async def there() -> dict[str, Any] | None:
        for worker in [worker for worker in stack.workers if not worker.alive]:
            stack.workers.remove(worker)
            await stack.start_worker()
        task = await stack.api.task(task_id)
        return task if task["state"] == state else None

    return await until(there, f"{task_id} to be {state}")


async def test_a_viewer_waits_less_than_five_seconds_for_a_killed_worker() -> None:
    """G8 as a viewer feels it, with leases of two seconds: silence until the next text."""
    async with QuickStack(workers=1) as stack:
        task_id = (await stack.api.submit(scripted(tokens=250, rate=40)))["task_id"]
        viewer = Viewer(stack.url, task_id)
        watching = asyncio.create_task(viewer.follow())
        await viewer.seen(200)
        await stack.start_worker()
        await until(partial(ready, stack.workers[1]), "the second worker")
        stack.workers.pop(0).kill()
        await watching
        viewer.check()
        chunks = [event.at for event in viewer.events if event.name == "chunk"]
        silence = max(after - before for before, after in pairwise(chunks))
        assert 1 < silence < 5


def ready(worker: Process) -> bool:
    return "tasks at once" in worker.tail()
