"""A share of a processor for some processes, by the kernel's own means; where those cannot be had (no root, a container
that may not), by stopping and continuing them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.wait import until_sync
from unbroken.cli.tether import command

PERIOD_US = 100_000
ROOT = Path("/sys/fs/cgroup")


def _make(share: float) -> Path | None:
    """A group that gets this share of one core, or None where it cannot be made."""
    quota = int(share * PERIOD_US)
    old, new = ROOT / "cpu", ROOT / "cgroup.controllers"
    folder = (old if old.is_dir() else ROOT) / f"ub-test-{os.getpid()}"
    try:
        if not old.is_dir() and "cpu" not in new.read_text():
            return None
        folder.mkdir()
        if old.is_dir():
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return None
    return folder


@contextmanager
def _busy(count: int) -> Iterator[list[int]]:
    """So many processes that do nothing but run."""
    loops = [
        subprocess.Popen(command(os.getpid(), [sys.executable, "-S", "-c", "while True: pass"])) for _ in range(count)
    ]
    try:
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


async def _duty(pid: int, share: float) -> None:
    while True:
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(0.1 * (1 - share))
        os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0.1 * share)


@asynccontextmanager
async def starving(pid: int, *, share: float, beside: int) -> AsyncIterator[str]:
    """The process gets `share` of a core together with `beside` busy loops. Yields how it is done."""
    group = _make(share)
    if group is None:
        job = asyncio.create_task(_duty(pid, share / (1 + beside)))
        try:
            yield "stopped and continued"
        finally:
            job.cancel()
            os.kill(pid, signal.SIGCONT)
        return
    with _busy(beside) as loops:
        try:
            _move([*loops, pid], group)
            yield "a group of the kernel's"
        finally:
            _move([pid], group.parent)
    until_sync(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
    group.rmdir()


def _move(pids: Sequence[int], group: Path) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            (group / "cgroup.procs").write_text(str(pid))
