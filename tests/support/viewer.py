"""A viewer that trusts nothing: it reads a task's stream as raw bytes, checks the wire rules of section 5, folds the
events with a few lines of its own, can cut itself off at any byte, and comes back with Last-Event-ID."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.wait import until

_ID = re.compile(r"\d+-\d+")
NAMES = frozenset({"status", "chunk", "progress", "item", "checkpoint", "done", "failed", "cancelled"})
TERMINAL = {"done", "failed", "cancelled"}


class WireError(AssertionError):
    """The stream broke a rule of the contract."""


@dataclass(frozen=True)
class Event:
    """As it came."""

    id: str
    name: str
    data: dict[str, Any]
    at: float
    """Seconds on the monotonic clock when it was complete."""

    @property
    def order(self) -> tuple[int, int]:
        """The id as numbers."""
        epoch, n = self.id.split("-")
        return int(epoch), int(n)


class Wire:
    """One connection's bytes, strictly read. names: of the events that may come."""

    def __init__(self, names: frozenset[str] = NAMES) -> None:
        self.names = names
        self.raw = 0
        self.heartbeats = 0
        self.retry_ms: int | None = None
        self._rest = b""
        self._frames = 0

    def feed(self, block: bytes) -> list[Event]:
        """The events that are complete now. Raises WireError."""
        self.raw += len(block)
        if b"\r" in block:
            raise WireError("a carriage return in the stream")
        *frames, self._rest = (self._rest + block).split(b"\n\n")
        return [self._frame(frame) for frame in frames]

    def _frame(self, frame: bytes) -> Event:
        lines = frame.split(b"\n")
        self.heartbeats += sum(line == b":" for line in lines)
        lines = [line for line in lines if not line.startswith(b":")]
        if lines and lines[0].startswith(b"retry:"):
            if self.retry_ms is not None or self._frames:
                raise WireError("retry: not once at the start")
            self.retry_ms = int(lines.pop(0).removeprefix(b"retry:"))
        if not lines:
            raise WireError(f"a message without data: {frame!r}")
        self._frames += 1
        names = [line.partition(b":")[0] for line in lines]
        if sorted(names) != [b"data", b"event", b"id"]:
            raise WireError(f"an event is one id, one event and one data line, not {frame!r}")
        if not frame.isascii():
            raise WireError(f"not ASCII: {frame!r}")
        fields = {
            name.decode(): line.partition(b":")[2].removeprefix(b" ").decode()
            for name, line in zip(names, lines, strict=True)
        }
        if not _ID.fullmatch(fields["id"]) or fields["event"] not in self.names:
            raise WireError(f"a strange event: {frame!r}")
        return Event(fields["id"], fields["event"], json.loads(fields["data"]), time.monotonic())


@dataclass
class Viewer:
    """One viewer of one task. `follow` until the end; the fields tell what was seen."""

    url: str
    task_id: str
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    state: str = ""
    end: Event | None = None
    events: list[Event] = field(default_factory=list)
    rewinds: int = 0
    connections: int = 0
    refused: int = 0
    """Connections that failed or were answered with 5xx or 429: a server that is away."""
    items: dict[int, dict[str, Any]] = field(default_factory=dict)
    last_id: str | None = None
    names: frozenset[str] = NAMES

    @property
    def path(self) -> str:
        """Where the stream is."""
        return f"{self.url}/api/tasks/{self.task_id}/stream"

    def take(self, event: Event) -> None:
        """Fold one event. Raises WireError for a gap, or an id that does not rise."""
        if self.events and event.order <= self.events[-1].order:
            raise WireError(f"id {event.id} after {self.events[-1].id}")
        if self.end is not None:
            raise WireError(f"{event.name} after the end")
        self.events.append(event)
        self.last_id = event.id
        data = event.data
        if event.name == "chunk":
            if data["offset"] > len(self.text):
                raise WireError(f"a gap: {event} at {len(self.text)} characters")
            self.rewinds += data["offset"] < len(self.text)
            self.text = self.text[: data["offset"]] + data["text"]
        elif event.name == "status":
            self.state = data["state"]
        elif event.name == "item":
            self.items[data["index"]] = data
        elif event.name in TERMINAL:
            self.end, self.state = event, data["state"]

    async def follow(
        self, *, cuts: int = 0, chance: random.Random | None = None, within: float = 100, reach: int = 2_000
    ) -> Viewer:
        """View until the end, over any number of lost connections. With `cuts`, cut the connection that often,
        each time after a random number of bytes up to `reach`. Raises TimeoutError."""
        chance = chance or random.Random(0)
        async with asyncio.timeout(within), httpx.AsyncClient(timeout=httpx.Timeout(20), trust_env=False) as client:
            while self.end is None:
                limit = chance.randint(1, reach) if cuts > 0 else None
                if await self._connect(client, limit):
                    cuts -= 1
                if self.end is None:
                    await asyncio.sleep(chance.uniform(0, 0.03))
        return self

    async def until_length(self, length: int, *, within: float = 60) -> Viewer:
        """View until the text is at least this long (or over), then leave."""
        async with asyncio.timeout(within), httpx.AsyncClient(timeout=20, trust_env=False) as client:
            while self.end is None and len(self.text) < length:
                await self._connect(client, None, enough=length)
        return self

    async def _connect(self, client: httpx.AsyncClient, limit: int | None, enough: int | None = None) -> bool:
        """One connection. True when it was cut by ourselves after `limit` bytes."""
        headers = dict(self.headers)
        if self.last_id is not None:
            headers["Last-Event-ID"] = self.last_id
        try:
            async with client.stream("GET", self.path, headers=headers) as answer:
                if answer.status_code == 429 or answer.status_code >= 500:
                    self.refused += 1
                    return False
                if answer.status_code != 200:
                    await answer.aread()
                    raise WireError(f"{answer.status_code} {answer.text} for {headers}")
                self.connections += 1
                return await self._read(answer, limit, enough)
        except httpx.TransportError:
            self.refused += 1
            return False

    async def _read(self, answer: httpx.Response, limit: int | None, enough: int | None) -> bool:
        wire = Wire(self.names)
        async for block in answer.aiter_raw():
            rest = None if limit is None else limit - wire.raw
            for event in wire.feed(block if rest is None else block[:rest]):
                self.take(event)
            if self.end is not None or (enough is not None and len(self.text) >= enough):
                return False
            if limit is not None and wire.raw >= limit:
                return True
        return False

    async def seen(self, length: int, *, within: float = 60) -> None:
        """Wait until the text is this long, while `follow` runs in another task."""
        await until(lambda: len(self.text) >= length, f"{length} characters to be seen", within=within)

    def check(self) -> None:
        """The end says what was seen (G1)."""
        assert self.end is not None, f"no end was seen: {self.state}, {len(self.text)} characters"
        if self.end.name == "done":
            assert self.end.data["length"] == len(self.text)
            assert self.end.data["sha256"] == hashlib.sha256(self.text.encode()).hexdigest()

    def holes(self) -> list[tuple[str, str]]:
        """Neighbouring events whose numbers do not follow one another. Folded replay leaves some on purpose."""
        pairs = zip(self.events, self.events[1:], strict=False)
        return [(a.id, b.id) for a, b in pairs if b.order[1] != a.order[1] + 1]
