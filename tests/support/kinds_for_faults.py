"""Kinds of the tests' own, loaded by workers and servers with UNBROKEN_KINDS=tests.support.kinds_for_faults."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import BaseModel

from unbroken.tasks.kind import Checkpoint, Kind, Progress, Run, Text, Update


class Stubborn(Kind):
    """Blocks its whole process, event loop and all, for `seconds`; then says one word."""

    name = "stubborn"

    class Input(BaseModel):
        seconds: float

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """Block."""
        yield Text("before ")
        time.sleep(run.input.seconds)  # what no kind should do
        yield Text("after")


class Counting(Kind):
    """Counts to `upto` with a large state, one number at a time: the state is the truth, the text is only its trace.

    Each saved number is noted in `trace`, so a test sees where it started again. die_at: kill the process there, as
    long as the file `alive` does not exist."""

    name = "counting"
    continues = "state"

    class Input(BaseModel):
        upto: int
        trace: str
        size: int = 0
        pause_s: float = 0.01
        die_at: int | None = None

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """Count."""
        import asyncio

        given = run.input
        at = run.state["at"] if run.state else 0
        with Path(given.trace).open("a") as trace:
            trace.write(f"{run.attempt} {at}\n")
        while at < given.upto:
            if at == given.die_at and not Path(given.trace + ".alive").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(given.pause_s)
            yield Text(f"{at} ")
            at += 1
            yield Progress(at, given.upto)
            yield Checkpoint({"at": at, "ballast": os.urandom(given.size)}, milestone=True)


class Deadly(Kind):
    """Says the numbers below `upto`, each of them saved before the next, and kills its process: always before the
    number `dies_at`, and whenever it has said `a_life` of them."""

    name = "deadly"
    continues = "text"

    class Input(BaseModel):
        upto: int
        dies_at: int | None = None
        a_life: int | None = None

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """Say them."""
        at = begins = len(run.text.split())
        while at < run.input.upto:
            if at == run.input.dies_at or at - begins == run.input.a_life:
                os.kill(os.getpid(), signal.SIGKILL)
            yield Text(f"{at} ")
            yield Checkpoint({}, milestone=True)
            at += 1


__all__ = ["Counting", "Deadly", "Stubborn"]
