"""`uv run python -m tests.faults.idle --minutes 5`: nobody wants anything, and nothing happens: no timeout, no new
connection, no line of log, next to no CPU; and a viewer that waited all the time sees the first text at once."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from tests.faults.ground import cpu_s, direct, lines
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.viewer import Viewer
from unbroken.tasks import keys

CPU_SHARE_MAX = 0.1  # of a core, for each process: polls, sweeps, heartbeats of the stream


async def idle(seconds: float) -> list[str]:
    """Run it and print the numbers. Returns what was wrong."""
    wrong: list[str] = []
    async with QuickStack(servers=2, workers=2, lease_s=10) as stack, direct(stack) as desk:
        task_id = (await stack.api.submit(scripted(tokens=50), run_at="2100-01-01T00:00:00Z"))["task_id"]
        viewer = Viewer(stack.url, task_id)
        watching = asyncio.create_task(viewer.follow(within=seconds + 60))
        await asyncio.sleep(5)
        parts = [*stack.servers, *stack.workers]
        before = [(cpu_s(part), len(lines(part.log))) for part in parts]
        clients = {row["id"] for row in await desk.redis.client_list() if not row["name"].endswith("-check")}
        await asyncio.sleep(seconds)
        for part, (cpu, count) in zip(parts, before, strict=True):
            used, said = cpu_s(part) - cpu, len(lines(part.log)) - count
            print(f"  {part.name}: {said} lines, {used / seconds:.2%} of a core", flush=True)
            if said or used > CPU_SHARE_MAX * seconds:
                wrong.append(f"{part.name}: {part.tail(5)}")
        gone = clients - {row["id"] for row in await desk.redis.client_list()}
        print(f"  {len(clients)} connections to the database, {len(gone)} of them were made again", flush=True)
        if gone:
            wrong.append("connections were made again")
        began = time.monotonic()
        await desk.redis.zadd(keys.key("delayed"), {task_id: 1})
        await watching
        viewer.check()
        print(f"  the text came whole {time.monotonic() - began:.1f} s after its time", flush=True)
        if (viewer.text, viewer.connections) != (story(tokens=50), 1):
            wrong.append(f"the viewer has {len(viewer.text)} characters by {viewer.connections} connections")
    return wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.idle", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    wrong = asyncio.run(idle(60 * parser.parse_args().minutes))
    print("\n".join(wrong), end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
