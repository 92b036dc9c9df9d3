"""`uv run python -m tests.faults.outage --seconds 60`: the database is away for a minute under running tasks.

What the suite tries with eight seconds (test_4_redis_trouble.py), at full length and with numbers: lines of log and
seconds of CPU of each process while nobody answers, who was taken for dead, and how soon text goes on. Exit code 1 when
one of the rules is broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from tests.faults.ground import cpu_s, direct, lines, sound
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.viewer import Viewer
from tests.support.wait import until

TASKS, TOKENS, RATE = 12, 600, 15.0
LINES_MAX = 40  # of one process, however long it takes
SHARE_MAX = 0.25  # of a core, for each process


async def outage(seconds: float, lease_s: float) -> list[str]:
    """Run it and print the numbers. Returns what was wrong."""
    wrong: list[str] = []
    async with (
        QuickStack(servers=2, workers=3, concurrency=4, lease_s=lease_s) as stack,
        direct(stack) as desk,
    ):
        ids = [(await stack.api.submit(scripted(seed=n, tokens=TOKENS, rate=RATE)))["task_id"] for n in range(TASKS)]
        viewers = [Viewer(stack.urls[n % 2], task_id) for n, task_id in enumerate(ids)]
        watching = asyncio.gather(*(viewer.follow(within=seconds + 120) for viewer in viewers))
        await asyncio.gather(*(viewer.seen(100) for viewer in viewers))
        parts = [*stack.servers, *stack.workers]
        before = [(cpu_s(part), len(lines(part.log))) for part in parts]
        await asyncio.to_thread(stack.valkey.kill)
        print(f"the database is away for {seconds:g} s; {TASKS} tasks run, leases of {lease_s:g} s", flush=True)
        await asyncio.sleep(seconds)
        for part, (cpu, count) in zip(parts, before, strict=True):
            used, said = cpu_s(part) - cpu, len(lines(part.log)) - count
            print(f"  {part.name}: {said} lines, {used:.2f} s of CPU ({used / seconds:.1%} of a core)", flush=True)
            if said > LINES_MAX or used > SHARE_MAX * seconds:
                wrong.append(f"{part.name} runs hot")
        known = [len(viewer.text) for viewer in viewers]
        await asyncio.to_thread(stack.valkey.start)
        back = time.monotonic()
        await until(lambda: all(len(v.text) > n for v, n in zip(viewers, known, strict=True)), "text to go on")
        print(f"  every viewer gets new text {time.monotonic() - back:.1f} s after it is back", flush=True)
        await watching
        for n, viewer in enumerate(viewers):
            viewer.check()
            task = await stack.api.task(viewer.task_id)
            if viewer.text != story(seed=n, tokens=TOKENS) or viewer.rewinds:
                wrong.append(f"{viewer.task_id}: the text is not exact")
            if (task["attempts"], task["errors"], task["crashes"]) != (1, 0, 0):
                wrong.append(f"{viewer.task_id}: {task['attempts']} attempts, {task['crashes']} crashes")
        await sound(desk, ids)
        print(f"  {TASKS} texts exact; {len(wrong)} rules broken", flush=True)
    return wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.outage", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--lease", type=float, default=10.0, help="seconds; the product's default is 10")
    given = parser.parse_args()
    wrong = asyncio.run(outage(given.seconds, given.lease))
    print("\n".join(wrong), end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
