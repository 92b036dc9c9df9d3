"""Ends that come close together: tiny tasks under viewers, errors in the same second as SIGTERM, a server's end under a
crowd."""

from __future__ import annotations

import asyncio
import json
import random

from tests.faults.ground import direct, read_to_end, sound
from tests.faults.herd import herd, watch
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.viewer import Viewer
from tests.support.wait import until
from unbroken.tasks import keys

TINY = 300


async def test_nobody_gets_the_end_without_the_last_text() -> None:
    """Tasks whose only text and end are one write, each with somebody who waits for just that."""
    async with QuickStack(workers=1, concurrency=16) as stack, direct(stack) as desk:
        for _ in range(TINY // 50):
            tasks = await asyncio.gather(
                *(
                    stack.api.submit(scripted(seed=n, tokens=1 + n % 3), run_at="2100-01-01T00:00:00Z")
                    for n in range(50)
                )
            )
            ids = [task["task_id"] for task in tasks]
            viewers = [Viewer(stack.url, task_id) for task_id in ids]
            watching = asyncio.gather(*(watch(viewer, random.Random(1)) for viewer in viewers))
            await until(lambda: all(viewer.events for viewer in viewers), "everybody to be there")  # noqa: B023
            await desk.redis.zadd(keys.key("delayed"), dict.fromkeys(ids, 1))  # now, all together
            await watching
            for n, viewer in enumerate(viewers):
                viewer.check()
                assert viewer.text == story(seed=n, tokens=1 + n % 3)
                assert viewer.connections == 1
        await sound(desk, ids)


async def test_errors_in_the_same_second_as_sigterm() -> None:
    """Whatever comes first, the error or the hand-over: nothing stays "processing", each error is counted once."""
    async with (
        QuickStack(workers=1, concurrency=16, backoff_base_s=0.1, backoff_cap_s=0.2) as stack,
        direct(stack) as desk,
    ):
        fails = [("transient", "permanent")[n % 2] for n in range(16)]
        bad = [
            scripted(seed=n, tokens=100, rate=50, fail=fail, fail_at=30 + 3 * n)  # type: ignore[arg-type]
            for n, fail in enumerate(fails)
        ]
        ids = [task["task_id"] for task in await asyncio.gather(*(stack.api.submit(data) for data in bad))]
        await stack.api.until_state(ids[1], "failed")  # the others fail within the next second
        old = stack.workers.pop()
        assert await old.stop(within=30) == 0
        states = [(await stack.api.task(task_id))["state"] for task_id in ids]
        assert "processing" not in states
        await stack.start_worker()
        for n, (task_id, fail) in enumerate(zip(ids, fails, strict=True)):
            task = await stack.api.until_state(task_id, {"completed", "failed"})
            again = json.loads((await desk.redis.hget(keys.key("task", task_id), "interruptions")) or b"0")
            if fail == "transient":
                assert (task["state"], task["crashes"]) == ("completed", 0)
                assert task["errors"] <= 1
                assert task["attempts"] == 1 + task["errors"] + again
                await read_to_end(stack, task_id, story(seed=n, tokens=100))
            else:
                assert (task["crashes"], task["errors"] <= 1) == (0, True)
        await sound(desk, ids)


async def test_a_server_dies_under_a_crowd_of_viewers() -> None:
    """All come back to the next one and have the exact text; it needs no more memory than the one before."""
    told = await herd(300, tokens=150)
    assert told.back_s < 30
    assert told.rss < told.first + 64 * 1024 * 1024
