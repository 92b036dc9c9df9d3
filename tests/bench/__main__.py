"""Measurements: `uv run python -m tests.bench [stream|queue|checkpoint|replay|all] [--quick]`.

Every table compares with something measured in the same run on the same machine: judge by the ratios."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from pathlib import Path

import uvloop

from tests.bench import checkpoints, queues, replays, stream

WHAT = ("stream", "replay", "queue", "checkpoint")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("what", nargs="*", default=["all"], choices=[*WHAT, "all"])
    parser.add_argument("--quick", action="store_true", help="smaller and shorter: about three minutes for all")
    parser.add_argument("--tasks", type=int, help="finished tasks beside which the list is measured (20,000; 5,000)")
    given = parser.parse_args()
    wanted = WHAT if "all" in given.what else given.what
    print(f"{_machine()}; load {os.getloadavg()[0]:.1f} at the start")
    began = time.monotonic()
    _own_loop()
    for what in wanted:
        asyncio.run(_run(what, given))
    print(f"{time.monotonic() - began:.0f} s in all; load {os.getloadavg()[0]:.1f} at the end")


async def _run(what: str, given: argparse.Namespace) -> None:
    quick: bool = given.quick
    if what == "stream":
        await stream.run(stream.QUICK if quick else stream.Plan())
    elif what == "replay":
        await replays.run(replays.QUICK if quick else replays.Plan())
    elif what == "queue":
        tasks = given.tasks or (5_000 if quick else 20_000)
        await queues.run(queues.QUICK if quick else queues.Plan(), tasks)
    elif what == "checkpoint":
        await checkpoints.run(checkpoints.QUICK if quick else checkpoints.Plan())


def _own_loop() -> None:
    """The publisher runs as a worker does: on uvloop."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def _machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} cores, {model}, Linux {platform.release()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
