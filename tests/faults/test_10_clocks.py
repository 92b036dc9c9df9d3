"""G18: only Redis' clock counts, so this is what happens when just that one is wrong. store/test_clock.py has the rules
one by one; here everything runs, and a real server's clock is set."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path

from tests.faults.ground import cpu_s, direct, lines, sound
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.stepped_clock import SteppedClock
from tests.support.viewer import Viewer

HOUR = 3_600
TOKENS = 150


async def test_the_clock_of_the_database_is_set_while_everything_runs(tmp_path: Path) -> None:
    """An hour forward, and on another database an hour back. A worker dies in that very moment."""
    await asyncio.gather(*(_set(tmp_path / name, jump) for name, jump in (("forward", HOUR), ("back", -HOUR))))


async def _set(folder: Path, jump: int) -> None:
    folder.mkdir()
    clock = SteppedClock(folder)
    with clock.valkey() as valkey:
        async with QuickStack(workers=2, valkey=valkey, concurrency=2) as stack, direct(stack) as desk:
            ids = [(await stack.api.submit(scripted(seed=n, tokens=TOKENS, rate=50)))["task_id"] for n in range(4)]
            viewers = [Viewer(stack.url, task_id) for task_id in ids]
            watching = asyncio.gather(*(viewer.follow(within=90) for viewer in viewers))
            await asyncio.gather(*(viewer.seen(200) for viewer in viewers))
            runs = {task_id: (await desk.store.get(task_id, None)).text("worker") for task_id in ids}
            parts = [*stack.servers, *stack.workers]
            before = [cpu_s(part) for part in parts[:-1]]
            clock.set(jump)
            victim = stack.workers.pop()
            victim.kill()
            assert abs((await desk.store.time_ms()) / 1000 - time.time() - jump) < 60, "it is really set"
            await watching
            for n, viewer in enumerate(viewers):
                viewer.check()
                assert (viewer.text, viewer.rewinds) == (story(seed=n, tokens=TOKENS), 0)
                chunks = [event.at for event in viewer.events if event.name == "chunk"]
                assert max((after - at for at, after in pairwise(chunks)), default=0) < 15, "silence after the kill"
                task = await stack.api.task(viewer.task_id)
                lost = int(f"-{victim.pid}-" in runs[viewer.task_id])
                assert (task["attempts"], task["crashes"]) == (1 + lost, lost), "only the dead are taken for dead"
            for part, cpu in zip(parts[:-1], before, strict=True):
                assert cpu_s(part) - cpu < 8, "nobody runs hot"
                assert not lines(part.log, "Traceback"), part.tail()
            await sound(desk, ids)
