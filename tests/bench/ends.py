"""The two ends of a measurement, in C: viewers that check what they get, and the raw limit of this machine.

Compiled at the first use with the system's `cc`; see wire/wire.c for what they can be told."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.processes import free_port
from tests.support.wait import until
from unbroken.cli.tether import command

SOURCES = Path(__file__).parent / "wire"
Seen = dict[str, Any]
"""What an end reports: counts, and histograms in microseconds."""


@cache
def binary() -> Path:
    """The program, compiled from exactly these sources."""
    files = [SOURCES / name for name in ("wire.c", "serve.c", "watch.c")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"unbroken-wire-{os.getuid()}-{digest}"
    if not target.exists():
        part = target.with_suffix(f".{os.getpid()}")
        flags = ["-O2", "-Wall", "-Wextra", "-std=gnu11", "-D_GNU_SOURCE"]
        subprocess.run(["cc", *flags, "-o", str(part), *map(str, files)], check=True)
        part.rename(target)
    return target


class End:
    """One process of the program, told what to do by lines on its stdin."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """For its CPU and memory."""
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        argv = command(os.getpid(), [str(binary()), *self._arguments])
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        await self.look()  # it is there, and listens
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    def say(self, line: str) -> None:
        """Give a command that has no answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def _ask(self, line: str) -> Seen:
        assert self._process is not None
        assert self._process.stdout is not None
        self.say(line)
        answer: Seen = json.loads(await self._process.stdout.readline())
        return answer

    async def look(self) -> Seen:
        """What was counted since the last mark."""
        return await self._ask("look")

    async def mark(self) -> Seen:
        """The same, and count from here."""
        return await self._ask("mark")


class Raw(End):
    """The limit: a server without logic, whose every write carries frames that were ready before."""

    def __init__(self) -> None:
        self.port = free_port()
        super().__init__("serve", str(self.port))

    def to_all(self, rate: float, *, tick_ms: int, size: int) -> None:
        """`rate` events a second, the same for everybody."""
        self.say(f"all {rate} {tick_ms} {size}")

    def to_each(self, rate: float, *, size: int) -> None:
        """`rate` events a second for each connection, evenly spread."""
        self.say(f"each {rate} {size}")

    def past(self, count: int, *, size: int) -> None:
        """Whoever connects gets so many events at once."""
        self.say(f"past {count} {size}")

    def idle(self) -> None:
        """Send nothing any more."""
        self.say("idle")


class Swarm(End):
    """Viewers of a server on this machine. rows: path, cursor and characters at the cursor for each, in turn."""

    def __init__(self, port: int, rows: Sequence[str | tuple[str, str, int]]) -> None:
        lines = [row if isinstance(row, str) else " ".join(map(str, row)) for row in rows]
        with tempfile.NamedTemporaryFile("w", prefix="ub-rows-", delete=False) as file:
            file.write("\n".join(lines) + "\n")
        self._file = Path(file.name)
        self.wanted = 0
        super().__init__("watch", str(port), file.name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        self._file.unlink(missing_ok=True)

    def start(self, count: int, *, seconds: float = 0, burst: int = 128) -> None:
        """Open connections, spread over some seconds, at most `burst` waiting for an answer."""
        self.wanted += count
        self.say(f"open {count} {seconds} {burst}")

    async def open(self, count: int, *, seconds: float = 0, burst: int = 128) -> Seen:
        """Open connections and wait until all have their head. Returns what was seen, and counts from there."""
        self.start(count, seconds=seconds, burst=burst)
        await until(self._all_there, f"{self.wanted} viewers to be connected", within=120)
        return await self.mark()

    async def _all_there(self) -> bool:
        now = await self.look()
        assert not now["refused"], f"refused: {now}"
        return bool(now["alive"] >= self.wanted)

    async def complete(self, count: int, *, within: float = 60) -> Seen:
        """Wait until so many viewers are done."""

        async def all_done() -> Seen | None:
            now = await self.look()
            return now if now["done"] >= count else None

        found = await until(all_done, f"{count} viewers to have everything", within=within)
        assert found is not None
        return found

    async def quiet(self, *, within: float = 60) -> None:
        """Wait until nothing comes any more."""
        last = -1

        async def silent() -> bool:
            nonlocal last
            before, last = last, (await self.look())["frames"]
            return bool(before == last)

        await until(silent, "the viewers to have read everything", within=within, every=0.25)
