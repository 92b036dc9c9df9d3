"""Short words for tests that drive the store: submit, claim, write, look."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from unbroken.tasks import codec, events, keys
from unbroken.tasks.connection import Calls
from unbroken.tasks.holder import Holder, wish
from unbroken.tasks.lease import Batch, Claimed, Event, Last, Lease
from unbroken.tasks.record import Task
from unbroken.tasks.settings import Settings
from unbroken.tasks.store import Store
from unbroken.tasks.submit import NewTask

OWNER = "local"


class Desk:
    """One store, any number of workers, all real."""

    def __init__(self, redis: Redis, settings: Settings, *, clock: str | None = None) -> None:
        self.redis: Any = redis
        self.settings = settings
        self.clock = clock
        self.store = Store(redis, settings, clock=clock)

    def holder(self, worker: str = "w1") -> Holder:
        """A worker's door."""
        return Holder(Calls(self.redis, clock=self.clock), self.settings, worker)

    async def set_time(self, ms: int) -> None:
        """Only with a test clock."""
        assert self.clock
        await self.redis.set(self.clock, ms)

    async def tick(self, ms: int) -> None:
        """Let time pass. The reaper looks every tenth of a lease meanwhile, as it does in a running system."""
        assert self.clock
        step = self.settings.lease_ms // 10
        while ms > 0:
            now = int(await self.redis.get(self.clock))
            await self.set_time(now + min(step, ms))
            ms -= step
            if ms > 0:
                await self.store.reap(limit=0)

    async def submit(self, owner: str = OWNER, **given: Any) -> Task:
        """A text task."""
        idempotency_key = given.pop("idempotency_key", None)
        new = NewTask(owner=owner, kind="text", input=given.pop("input", {"prompt": "x"}), unit="tokens", **given)
        task, _ = await self.store.create(new, actor=owner, idempotency_key=idempotency_key)
        return task

    async def claim(self, worker: str = "w1") -> Claimed:
        """Claim, and insist on a task."""
        holder = self.holder(worker)
        got = await holder.claim(holder.new_token())
        assert isinstance(got, Claimed), f"nothing to claim: {got}"
        return got

    async def write(self, lease: Lease, text: str, *, at: int, batch: int, chars: int | None = None) -> str:
        """Append text at byte `at`; `chars` is the offset in code points where that differs."""
        offset = at if chars is None else chars
        chunk = Event(events.CHUNK, events.chunk(offset, text, 0.5))
        raw = text.encode()
        return await self.holder().append(lease, Batch(batch, at, raw, offset + len(text), 0.5, batch, 100, [chunk]))

    async def complete(self, lease: Lease, text: str) -> None:
        """End with all text already written."""
        raw = text.encode()
        await self.holder().complete(
            lease, Last(len(raw), b"", len(text)), sha256=events.sha256(raw), size=len(raw), result_length=len(text),
            done=1, total=1,
        )  # fmt: skip

    async def fail(self, lease: Lease, *, retryable: bool, delay_s: float = 0, at: int = 0, group: str = "g") -> str:
        """End with an error, nothing more written."""
        return await self.holder().fail(
            lease, Last(at, b"", at), retryable=retryable, delay_s=delay_s,
            error=b'{"code":"x","message":"y","retryable":false}', detail="", group=group,
        )  # fmt: skip

    async def save(self, lease: Lease, state: dict[str, Any], *, seq: int, offset: int) -> str:
        """Save an inline checkpoint."""
        sealed = codec.seal(state, schema=1, limit=1_000_000)
        return await self.holder().checkpoint(lease, seq=seq, offset=offset, progress=0.5, sealed=sealed)

    async def beat(self, lease: Lease) -> str:
        """One heartbeat. Returns the owner's wish."""
        return wish(await self.store.calls.call("heartbeat", lease.key, *lease.args, self.settings.lease_ms))

    async def log(self, task_id: str) -> list[tuple[str, str, bytes]]:
        """All events."""
        return await self.store.events(task_id, "0-0", count=10_000)

    async def dump(self, task_id: str) -> dict[str, Any]:
        """Every key of a task, to compare before and after."""
        found: dict[str, Any] = {}
        for what in ("task", "in", "ev", "text", "marks", "items", "ckpt", "hist"):
            found[what] = await self.redis.dump(keys.key(what, task_id))
        for index in ("ready", "delayed", "leases", "paused", "dead", "done"):
            found[index] = await self.redis.zscore(keys.key(index), task_id)
        return found
