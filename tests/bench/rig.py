"""What a measurement stands on: a real server on a real Valkey, and a publisher that plays the workers' part.

The publisher claims tasks and appends under its leases through the same script as a worker, many tasks' appends in one
round trip. Each event's text begins with the time of its append (`@<microseconds> `)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support.processes import Stack
from tests.support.valkey import Valkey
from unbroken.tasks import events
from unbroken.tasks.connection import Calls, connect
from unbroken.tasks.holder import Holder, wish
from unbroken.tasks.lease import Batch, Claimed, Event, Last, Lease
from unbroken.tasks.settings import Settings
from unbroken.tasks.store import Store
from unbroken.tasks.submit import NewTask

OWNER = "local"
LEASE_S = 600.0  # nothing here is about lost leases


@dataclass
class Pen:
    """One task being written. count: events appended by us; first: number of the event before them."""

    lease: Lease
    first: int
    batch: int = 0
    chars: int = 0
    count: int = 0

    @property
    def path(self) -> str:
        """Where viewers find it."""
        return f"/api/tasks/{self.lease.task_id}/stream"

    def cursor(self, count: int, size: int) -> str:
        """A viewer's row that has seen `count` of our events of `size` characters each."""
        return f"{self.path} {self.lease.epoch}-{self.first + count} {count * size}"


class Publisher:
    """Writes tasks at given rates."""

    def __init__(self, redis_url: str) -> None:
        self.settings = Settings(redis_url=redis_url, lease_s=LEASE_S)
        self.redis = connect(redis_url, name="bench")
        self.calls = Calls(self.redis)
        self.store = Store(self.redis, self.settings)
        self.holder = Holder(self.calls, self.settings, "bench")

    async def start(self, count: int) -> list[Pen]:
        """So many tasks, submitted and claimed."""
        for at in range(0, count, 50):
            new = [NewTask(owner=OWNER, kind="text", input={"prompt": "x"}, unit="tokens") for _ in range(50)]
            await asyncio.gather(*(self.store.create(one, actor=OWNER) for one in new[: count - at]))
        pens = []
        for _ in range(count):
            claimed = await self.holder.claim(self.holder.new_token())
            assert isinstance(claimed, Claimed), claimed
            pens.append(Pen(claimed.lease, claimed.num("n")))
        return pens

    async def write(self, pens: Sequence[Pen], *, events_each: int, size: int) -> None:
        """One append of `events_each` events for each task, all in one round trip."""
        batches = [(pen.lease, self._batch(pen, events_each, size)) for pen in pens]
        for reply in await self.holder.append_many(batches):
            wish(reply)

    def _batch(self, pen: Pen, count: int, size: int) -> Batch:
        text = f"@{time.time_ns() // 1000} ".ljust(size, "x")[:size]
        at = pen.chars
        chunks = [Event("chunk", events.chunk(at + i * size, text, 0.5)) for i in range(count)]
        pen.batch += 1
        pen.chars += count * size
        pen.count += count
        return Batch(pen.batch, at, (text * count).encode(), pen.chars, 0.5, pen.count, None, chunks)

    async def broadcast(self, pen: Pen, *, rate: float, seconds: float, tick_ms: int, size: int) -> float:
        """One task at `rate` events a second. Returns the rate that was reached."""
        began, made = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(rate * passed) - made
            if due > 0:
                await self.write([pen], events_each=due, size=size)
                made += due
            await asyncio.sleep(max(0.0, tick_ms / 1000 - (time.monotonic() - began - passed)))
        return made / (time.monotonic() - began)

    async def each(self, pens: Sequence[Pen], *, rate: float, seconds: float, size: int) -> float:
        """Every task at `rate` events a second, evenly spread over time, as from two workers: one gathers while the
        other's appends are under way. Returns events a second in all."""
        halves = [half for half in (pens[::2], pens[1::2]) if half]
        return sum(await asyncio.gather(*(self._each(half, rate, seconds, size) for half in halves)))

    async def _each(self, pens: Sequence[Pen], rate: float, seconds: float, size: int) -> float:
        began, made, total = time.monotonic(), 0, len(pens)
        while (passed := time.monotonic() - began) < seconds:
            due = min(int(rate * total * passed) - made, total)
            if due > 0:
                some = [pens[i % total] for i in range(made, made + due)]
                await self.write(some, events_each=1, size=size)
                made += due
            await asyncio.sleep(max(0.0, 0.002 - (time.monotonic() - began - passed)))
        return made / (time.monotonic() - began)

    async def past(self, pen: Pen, count: int, *, size: int) -> None:
        """Write that many events as quickly as possible."""
        while (left := count - pen.count) > 0:
            await self.write([pen], events_each=min(100, left), size=size)

    async def finish(self, pen: Pen, text: bytes) -> None:
        """Complete a task of this text."""
        await self.holder.complete(
            pen.lease,
            Last(len(text), b"", pen.chars),
            sha256=events.sha256(text),
            size=len(text),
            result_length=pen.chars,
            done=1,
            total=1,
        )


@dataclass
class Rig:
    """All of it."""

    stack: Stack
    publisher: Publisher

    @property
    def port(self) -> int:
        """The server's."""
        return int(self.stack.url.rpartition(":")[2])

    @property
    def server(self) -> int:
        """The server's process id."""
        return self.stack.servers[0].pid

    @property
    def valkey(self) -> int:
        """Valkey's process id."""
        assert self.stack.valkey.process is not None
        return self.stack.valkey.process.pid


@asynccontextmanager
async def rig(
    *, workers: int = 0, servers: int = 1, valkey: Valkey | None = None, **settings: object
) -> AsyncIterator[Rig]:
    """One server and no worker, unless asked for otherwise. A given Valkey is used as it is (over TCP, where it has a
    port), and left running."""
    wanted: dict[str, object] = {"lease_s": 30, "log_level": "warning", **settings}
    url = f"redis://127.0.0.1:{valkey.port}" if valkey and valkey.port else None
    async with Stack(valkey=valkey, redis_url=url, servers=servers, workers=workers, **wanted) as stack:
        publisher = Publisher(stack.redis_url)
        try:
            yield Rig(stack, publisher)
        finally:
            await publisher.redis.aclose()
