"""One part of `unbroken up` as a child process: started, read, restarted when it dies, stopped in the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from unbroken.cli.logs import Output
from unbroken.cli.place import CannotStart
from unbroken.cli.policy import Backoff, Deaths, how_it_ended
from unbroken.cli.tether import command

GIVES_UP = "unbroken: "  # how a command of ours begins the one sentence before it ends


@dataclass(frozen=True, slots=True)
class Part:
    """What to run.

    ready: asks the running part whether it does its work. patience_s: how long the first start may take.
    grace_s: how long it may take to stop after SIGTERM before it is killed. fds: descriptors it inherits."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    ready: Callable[[], Awaitable[bool]]
    patience_s: float = 60.0
    grace_s: float = 10.0
    fds: Sequence[int] = ()


@dataclass
class Child:
    """A part and its process. `run` is its life; `stop` ends it for good."""

    part: Part
    output: Output
    backoff: Backoff = field(default_factory=Backoff)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    process: asyncio.subprocess.Process | None = None
    stopping: bool = False
    was_ready: bool = False
    _life: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it and look after it from now on. Returns at once; see `until_ready`."""
        self.process = await self._spawn()
        self._life = asyncio.create_task(self._live(), name=self.part.name)

    async def until_ready(self) -> None:
        """Wait until it works. Raises CannotStart, with its last lines, when it dies or takes too long."""
        deadline = time.monotonic() + self.part.patience_s
        while not await self._is_ready():
            if self._life is not None and self._life.done():
                raise CannotStart(self._last_words(f"{self.part.name} did not start"))
            if time.monotonic() > deadline:
                raise CannotStart(self._last_words(f"{self.part.name} was not ready in {self.part.patience_s:g} s"))
            await asyncio.sleep(0.03)
        self.was_ready = True

    async def _is_ready(self) -> bool:
        if self.process is None or self.process.returncode is not None:
            return False
        try:
            async with asyncio.timeout(5):
                return await self.part.ready()
        except (OSError, TimeoutError):
            return False

    def _last_words(self, what: str) -> str:
        lines = [line for line in self.tail if line.startswith(GIVES_UP)] or list(self.tail)
        said = "\n".join(f"  {line}" for line in dict.fromkeys(lines))
        return f"{what}" + (f"; it said:\n{said}" if said else f" (see {self.output.path})")

    async def _spawn(self) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C in the terminal reaches only the supervisor, which stops parts in
        # order.
        return await asyncio.create_subprocess_exec(
            *command(os.getpid(), list(self.part.argv)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(self.part.env),
            pass_fds=tuple(self.part.fds),
            start_new_session=True,
        )

    async def _live(self) -> None:
        deaths = Deaths(self.backoff)
        while self.process is not None:
            born = time.monotonic()
            code = await self._read_and_wait(self.process)
            if self.stopping:
                return
            pause = deaths.died(time.monotonic() - born)
            words = f"{self.part.name} (process {self.process.pid}) {how_it_ended(code)}"
            if self.was_ready:
                self.output.say(f"{words}; starting it again in {pause:.1f} s")
            else:
                self.output.line_of_supervisor(f"{words} before it was ready")
                if code > 0 or deaths.in_a_row >= 3:
                    return  # it gave up by itself, or never works: `until_ready` tells why
            self.process = await self._again(pause, deaths)

    async def _again(self, pause: float, deaths: Deaths) -> asyncio.subprocess.Process | None:
        """Start it after the pause; None when it shall stop."""
        while True:
            await asyncio.sleep(pause)
            if self.stopping:
                return None
            try:
                return await self._spawn()
            except OSError as error:  # out of processes or memory: the machine may recover
                self.output.say(f"{self.part.name} cannot be started: {error.strerror}")
                pause = deaths.died(0)

    async def _read_and_wait(self, process: asyncio.subprocess.Process) -> int:
        reader = asyncio.create_task(self._read(process))
        code = await process.wait()
        # A grandchild may hold the pipe open for longer than the child lived: do not wait for that.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await reader
        return code

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        rest = b""
        while block := await process.stdout.read(65_536):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._line(line)
            if len(rest) > 65_536:  # a line without an end must not fill the memory
                self._line(rest)
                rest = b""
        if rest:
            self._line(rest)

    def _line(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace").rstrip("\r")
        if line.strip():
            self.tail.append(line)
            # Why a part gives up before it was ready is said once, by `until_ready`.
            self.output.line(self.part.name, line, show=self.was_ready or not line.startswith(GIVES_UP))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it is alive."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after the part's grace. Returns when it is gone."""
        self.stopping = True
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process would only see SIGTERM after somebody continues it
        if self.process is not None:
            try:
                async with asyncio.timeout(self.part.grace_s):
                    await self.process.wait()
            except TimeoutError:
                self.output.say(f"{self.part.name} did not stop in {self.part.grace_s:g} s and is killed")
                self.signal(signal.SIGKILL)
                await self.process.wait()
        if self._life is not None:
            # It may be in the pause before a restart.
            done, _ = await asyncio.wait({self._life}, timeout=1)
            if not done:
                self._life.cancel()
                await asyncio.gather(self._life, return_exceptions=True)
