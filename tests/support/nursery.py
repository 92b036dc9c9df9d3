"""Servers and workers that start in a tenth of a second: one process has imported everything, and forks.

What runs is the same command (`unbroken server`, `unbroken worker`) in a real process of its own, with its own log and
signals; only the imports were made before. Fault tests start and kill hundreds of them.

    async with QuickStack(workers=2) as stack: ...          # a Stack (processes.py) made of such processes

Run as a module it is that process: a line of JSON on stdin asks for a child, a line on stdout gives its id, and the
file `<folder>/<pid>` its exit code when it has ended."""

from __future__ import annotations

import atexit
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.support.processes import Process, Stack, environment
from tests.support.wait import until, until_sync
from unbroken.cli.tether import command, tie


class Nursery:
    """Our side of it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ub-nursery-"))
        self._process = subprocess.Popen(
            command(os.getpid(), [sys.executable, "-m", "tests.support.nursery", str(self.folder)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            cwd=Path(__file__).parents[2],
            text=True,
        )
        atexit.register(self.close)

    def fork(self, role: str, env: dict[str, str], log: Path) -> int:
        """Start one; returns its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"role": role, "env": env, "log": str(log)}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def code(self, pid: int) -> int | None:
        """How it ended, or None while it runs."""
        try:
            return int((self.folder / str(pid)).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def close(self) -> None:
        """All children end with it."""
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def nursery() -> Nursery:
    """The one of this test run."""
    return Nursery()


class Forked(Process):
    """A `Process` that the nursery started."""

    def __init__(self, name: str, role: str, env: dict[str, str], log: Path) -> None:
        self.name, self.log = name, log
        log.touch()
        self._nursery = nursery()
        self.pid = self._nursery.fork(role, env, log)

    @property
    def returncode(self) -> int | None:
        """How it ended."""
        return self._nursery.code(self.pid)

    @property
    def alive(self) -> bool:
        """Has it not ended?"""
        return self.returncode is None

    def send(self, number: signal.Signals) -> None:
        """Any signal."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        self.send(signal.SIGKILL)
        until_sync(lambda: not self.alive, f"{self.name} to be gone", every=0.002)

    async def stop(self, *, within: float = 60) -> int:
        """SIGTERM, and its exit code."""
        self.send(signal.SIGTERM)
        await until(lambda: not self.alive, f"{self.name} to stop", within=within)
        return self.returncode or 0


class QuickStack(Stack):
    """A `Stack` of forked processes."""

    def _start(self, role: str, **settings: object) -> Process:
        self._started += 1
        name = f"{role}-{self._started}"
        env = environment(**{**self.settings, "redis_url": self.redis_url, **settings})
        return Forked(name, role, env, self.folder / f"{name}.log")


# The other side: the process itself.


def main(folder: Path) -> None:
    """Fork what is asked for and note how each child ended, until stdin closes."""
    import unbroken.cli.main
    import unbroken.cli.serving
    import unbroken.server.main
    import unbroken.worker.main  # noqa: F401

    asked, rest = os.fdopen(0, "rb", buffering=0), b""
    while True:
        ready, _, _ = select.select([asked], [], [], 0.005)
        if ready:
            block = asked.read(1 << 16)
            if not block:
                return
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                os.write(1, b"%d\n" % _fork(json.loads(line)))
        _reap(folder)


def _reap(folder: Path) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        part = folder / f".{pid}"
        part.write_text(str(os.waitstatus_to_exitcode(status)))
        part.rename(folder / str(pid))


def _fork(job: dict[str, object]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        tie(parent)
        os.setsid()
        log = os.open(str(job["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((null, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        os.environ.clear()
        os.environ.update(job["env"])  # type: ignore[call-overload]
        sys.path[1:1] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        random.seed()
        sys.argv = ["unbroken", str(job["role"])]
        from unbroken.cli.main import run

        code = _exit_code(run)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _exit_code(run: object) -> int:
    assert callable(run)
    try:
        return int(run() or 0)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
