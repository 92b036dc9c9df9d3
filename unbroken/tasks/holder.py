"""What a worker asks of Redis: claim, and everything under the lease that a claim gives.

Each call names (epoch, lease id); Redis compares both for equality and refuses everything else with LeaseLost (G6).
Each call may be sent again when its reply was lost: a repeat is recognised and changes nothing (G14)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from unbroken.tasks import codec, keys
from unbroken.tasks.connection import Arg, Calls, translated
from unbroken.tasks.errors import LeaseLost, UnbrokenError
from unbroken.tasks.kind import Tail
from unbroken.tasks.lease import Batch, Claimed, Last, Lease, checkpoints, flat_events
from unbroken.tasks.record import pairs
from unbroken.tasks.settings import Settings

APPENDS = 32  # tasks in one script: together well below a millisecond or two of Redis
INPUT_LIMIT = 64 * 1024 * 1024


class Broken(UnbrokenError):
    """A script refused what only our own mistake could ask for (a gap in the text, a wrong digest)."""


class WentBack(Broken):
    """Redis holds less than this lease was told that it holds: it went back in time (a failover, a restored file). What
    is there is whole, so the next run continues from it."""


class Holder:
    """The worker's door to Redis."""

    def __init__(self, calls: Calls, settings: Settings, worker: str) -> None:
        self.calls = calls
        self.settings = settings
        self.worker = worker

    @staticmethod
    def new_token() -> str:
        """128 random bits: the lease id of one claim, and what makes its repeat recognisable."""
        return secrets.token_hex(16)

    async def claim(self, token: str) -> Claimed | float:
        """Take the best ready task, or say in how many seconds to ask again (-1: nothing is known to be due;
        0: at once). With the token of an earlier call whose reply was lost: that call's task."""
        got = (await self.claim_many([token]))[0]
        if isinstance(got, Exception):
            raise got
        return got

    async def claim_many(self, tokens: Sequence[str]) -> list[Claimed | float | Exception]:
        """Several claims in one round trip, each with a token of its own; a token that is sent again must stand at the
        same place. Instead of an answer there may be what went wrong with it. Raises StoreUnavailable when nothing was
        answered."""
        s, ready = self.settings, keys.key("ready")
        limits = (s.lease_ms, s.max_running, s.max_running_per_owner)
        calls = [("claim", ready, (self.worker, token, *limits, slot)) for slot, token in enumerate(tokens)]
        replies = await self.calls.call_many(calls)
        return [_claimed(reply, token) for reply, token in zip(replies, tokens, strict=True)]

    async def append_many(self, batches: Sequence[tuple[Lease, Batch]]) -> list[Any]:
        """Append a batch for each of these leases, in one round trip and few scripts; read each reply with `wish`.
        Raises StoreUnavailable when nothing was answered."""
        groups = [batches[at : at + APPENDS] for at in range(0, len(batches), APPENDS)]
        replies = await self.calls.call_many([self._append(group) for group in groups])
        found: list[Any] = []
        for group, reply in zip(groups, replies, strict=True):
            found += [reply] * len(group) if isinstance(reply, Exception) else reply
        for (lease, _), reply in zip(batches, found, strict=True):
            if isinstance(reply, list) and reply[0] in _FINE:
                lease.heard(reply[1])
        return found

    def _append(self, batches: Sequence[tuple[Lease, Batch]]) -> tuple[str, list[str], list[Arg]]:
        args: list[Arg] = [self.settings.lease_ms]
        for lease, batch in batches:
            total: Arg = "" if batch.total is None else batch.total
            args += [*lease.args, batch.number, batch.at, batch.text, batch.length]
            args += [f"{batch.progress:.4g}", batch.done, total, *flat_events(batch.events)]
        return "append", [lease.key for lease, _ in batches], args

    async def append(self, lease: Lease, batch: Batch) -> str:
        """Append one batch. Returns the owner's wish ('' or 'pause')."""
        return wish((await self.append_many([(lease, batch)]))[0])

    async def beat(self, lease: Lease) -> str:
        """Renew the lease now. Returns the owner's wish."""
        return wish(await self.calls.call("heartbeat", lease.key, *lease.args, self.settings.lease_ms))

    async def item(self, lease: Lease, index: int, data: bytes, total: int) -> tuple[bool, str]:
        """Set one item's result. Returns whether it was set now (False: it was set before), and the owner's wish."""
        reply = await self.calls.call("item", lease.key, *lease.args, self.settings.lease_ms, index, data, total)
        _check(reply)
        lease.heard(reply[2])
        return reply[0] == b"OK", (reply[3] or b"").decode()

    async def checkpoint(
        self,
        lease: Lease,
        *,
        seq: int,
        offset: int,
        progress: float,
        sealed: codec.Sealed,
        where: str = "inline",
    ) -> str:
        """Move the checkpoint's pointer. Returns the key of an object that is not needed any more, or ''."""
        data = sealed.data if where == "inline" else b""
        reply = await self.calls.call(
            "checkpoint",
            lease.key,
            *lease.args,
            self.settings.lease_ms,
            seq,
            offset,
            f"{progress:.4g}",
            sealed.schema,
            sealed.codec,
            sealed.raw,
            sealed.size,
            sealed.sha256,
            where,
            data,
        )
        _check(reply)
        lease.heard(reply[1].rpartition(b"-")[2])
        return str(reply[2].decode())

    async def complete(
        self,
        lease: Lease,
        last: Last,
        *,
        sha256: str,
        size: int,
        result_length: int,
        done: int,
        total: int | None,
    ) -> None:
        """The end and the last text in one write. `size`: bytes of all text; `result_length`: code points of the
        result."""
        s = self.settings
        reply = await self.calls.call(
            "complete",
            lease.key,
            *lease.args,
            last.at,
            last.text,
            last.length,
            sha256,
            size,
            done,
            "" if total is None else total,
            int(s.result_s * 1000),
            int(s.idempotency_s * 1000),
            int(s.checkpoint_done_s * 1000),
            result_length,
            *last.args(),
        )
        _check(reply)

    async def fail(
        self,
        lease: Lease,
        last: Last,
        *,
        retryable: bool,
        delay_s: float,
        error: bytes,
        detail: str,
        group: str,
    ) -> str:
        """A run went wrong. Returns the state that follows: recovering, failed or paused."""
        s = self.settings
        reply = await self.calls.call(
            "fail",
            lease.key,
            *lease.args,
            last.at,
            last.text,
            last.length,
            int(retryable),
            int(delay_s * 1000),
            error,
            detail,
            group,
            int(s.dead_s * 1000),
            int(s.idempotency_s * 1000),
            *last.args(),
        )
        _check(reply)
        return str(reply[1].decode())

    async def release(self, lease: Lease, last: Last, *, to: str, reason: str = "") -> str:
        """Give the task back: `to` recovering (costs nothing) or paused with a reason. Returns the state."""
        reply = await self.calls.call(
            "release", lease.key, *lease.args, last.at, last.text, last.length, to, reason, *last.args()
        )
        _check(reply)
        return str(reply[1].decode())

    async def warn(self, lease: Lease, message: str, *, unsaved: int | None = None) -> None:
        """Put a visible warning on the task (a checkpoint that had to be passed over); '' takes it away. unsaved: how
        many checkpoints could not be saved under this lease so far, for the operator's count."""
        text = message[:1_000].encode("utf-8", "replace")
        _check(await self.calls.call("warn", lease.key, *lease.args, text, "" if unsaved is None else unsaved))

    # reading what a resumed task needs

    async def text(self, task_id: str) -> bytes:
        """All text so far."""
        with translated():
            return bytes(await self.calls.redis.get(keys.key("text", task_id)) or b"")

    async def items(self, task_id: str) -> dict[int, bytes]:
        """Items that are set: index to the JSON of the item event."""
        with translated():
            raw = await self.calls.redis.hgetall(keys.key("items", task_id))
        return {int(index): bytes(data) for index, data in raw.items()}

    async def tail(self, task_id: str, after: str) -> list[Tail]:
        """The chunks of the log beyond the event `after` ('0-0' = all), with their notes."""
        found: list[Tail] = []
        while True:
            with translated():
                page = await self.calls.redis.xrange(keys.key("ev", task_id), min=f"({after}", count=1_000)
            for entry_id, fields in page:
                after = entry_id.decode()
                if fields.get(b"e") == b"chunk":
                    found.append(_tail(fields))
            if len(page) < 1_000:
                return found


def _claimed(reply: Any, token: str) -> Claimed | float | Exception:
    if isinstance(reply, Exception):
        return reply
    match reply:
        case [b"TASK", task_id, record, data, ckpt]:
            fields = pairs(record)
            lease = Lease(task_id.decode(), fields["epoch"].decode(), token)
            lease.heard(fields["n"])
            saved = pairs(ckpt)
            return Claimed(lease, fields, data, checkpoints(saved), len({name[:2] for name in saved}))
        case [b"NONE", wait]:
            return -1.0 if int(wait) < 0 else int(wait) / 1000
    return 0.0


def _tail(fields: Mapping[bytes, bytes]) -> Tail:
    data = json.loads(fields[b"d"])
    tokens: tuple[int, ...] = ()
    mark: int | None = None
    if b"x" in fields:
        note = codec.unpack(fields[b"x"], limit=1024 * 1024)
        tokens, mark = tuple(note.get("t", ())), note.get("m")
    return Tail(data["offset"], data["text"], tokens, mark)


def wish(reply: Any) -> str:
    """The owner's wish from an append's or heartbeat's reply. Raises LeaseLost, Broken, or what stands in its place."""
    _check(reply)
    return str((reply[-1] or b"").decode())


_FINE = (b"OK", b"SAME")


def _check(reply: Any) -> None:
    if isinstance(reply, ResponseError):
        raise Broken(str(reply))
    if isinstance(reply, Exception):
        raise reply
    word = reply[0]
    if word == b"LOST":
        raise LeaseLost(reply[1].decode())
    if word in (b"GAP", b"BEHIND", b"SHORT", b"MISMATCH"):
        raise WentBack(b" ".join(part if isinstance(part, bytes) else str(part).encode() for part in reply).decode())
    if word not in _FINE:
        raise Broken(b" ".join(part if isinstance(part, bytes) else str(part).encode() for part in reply).decode())
