"""Commands that start in a tenth of a second: one process has imported everything, and forks.

What runs is the same command (`unbroken server`, `unbroken worker`, `unbroken list`) in a real process of its own, with
its own output and signals; only the imports were made before. Fault tests start and kill hundreds of them.

    async with QuickStack(workers=2) as stack: ...          # a Stack (processes.py) made of such processes
    said = await command_line("list", env=environment(url=stack.url))

Run as a module it is that process: a line of JSON on stdin asks for a child, a line on stdout gives its id, and the
file `<folder>/<pid>` its exit code when it has ended."""

from __future__ import annotations

import asyncio
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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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

    def fork(self, arguments: Sequence[str], env: dict[str, str], out: Path, err: Path, stdin: str = os.devnull) -> int:
        """Start one, which appends to these files; returns its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"arguments": list(arguments), "env": env, "files": [stdin, str(out), str(err)]}
        self._process.stdin.write(json.dumps(job) + "\n")
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
        self.pid = self._nursery.fork([role], env, log, log)

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


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: bytes


async def command_line(*arguments: str, env: dict[str, str], stdin: bytes = b"", within: float = 60) -> Said:
    """Run `unbroken <arguments>` as a script does, with this environment and no terminal."""
    with tempfile.TemporaryDirectory(prefix="ub-command-") as folder:
        given, out, err = (Path(folder) / name for name in ("in", "out", "err"))
        given.write_bytes(stdin)
        pid = nursery().fork(arguments, env, out, err, str(given))
        shown = " ".join(arguments)
        try:
            await until(lambda: nursery().code(pid) is not None, f"`unbroken {shown}` to end", within=within)
        except (TimeoutError, asyncio.CancelledError):
            os.kill(pid, signal.SIGKILL)
            raise
        code = nursery().code(pid)
        assert code is not None
        return Said(code, out.read_bytes(), err.read_bytes())


# The other side: the process itself.


def main(folder: Path) -> None:
    """Fork what is asked for and note how each child ended, until stdin closes."""
    import unbroken.cli.insight
    import unbroken.cli.main
    import unbroken.server.main
    import unbroken.worker.main

    unbroken.cli.main.make_app()  # loads what all commands need

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


def _fork(job: dict[str, Any]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        tie(parent)
        os.setsid()
        for number, file in enumerate(job["files"]):
            os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT if number else os.O_RDONLY, 0o600), number)
        os.environ.clear()
        os.environ.update(job["env"])
        sys.path[1:1] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        random.seed()
        sys.argv = ["unbroken", *job["arguments"]]
        from unbroken.cli.main import run

        code = _exit_code(run)
    finally:
        sys.stdout.flush()
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
