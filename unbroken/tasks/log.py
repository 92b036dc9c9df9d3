"""Reading a task's log: its events, its text, and both as they were at one moment. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unbroken.tasks import codec, keys
from unbroken.tasks.connection import Calls, translated
from unbroken.tasks.errors import Corrupt
from unbroken.tasks.events import NAMES, EventId
from unbroken.tasks.record import pairs
from unbroken.tasks.state import State

INPUT_LIMIT = 64 * 1024 * 1024  # bytes that are decoded; far above what a submit may hold
_NAMES = frozenset(name.encode() for name in NAMES)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task's whole visible state at one moment, for a late viewer. Sizes of `text` in bytes (UTF-8).

    marks: (event id, bytes, characters) where the text may be cut. last: id, name and data of the newest event.
    checkpoint: (event id, characters, bytes, progress, saved ms) or None. items: how many results a batch has.
    rewound: number of the last event that took text back."""

    state: State
    first: EventId
    newest: EventId
    attempt: int
    reason: str
    length: int
    progress: str
    text: bytes
    marks: list[tuple[str, int, int]]
    last: tuple[str, str, bytes]
    checkpoint: tuple[str, int, int, float, int] | None
    retry_at: int
    updated: int
    items: int
    rewound: int = 0


class Log:
    """The reading half of the store."""

    redis: Any
    calls: Calls

    async def text(self, task_id: str) -> bytes | None:
        """All text of a task (UTF-8), or None when nothing is stored (any more)."""
        with translated():
            raw = await self.redis.get(keys.key("text", task_id))
        return None if raw is None else bytes(raw)

    async def input(self, task_id: str) -> dict[str, Any] | None:
        """What was asked for, as it was stored; None when it is not kept any more. Raises Corrupt."""
        with translated():
            raw = await self.redis.get(keys.key("in", task_id))
        if raw is None:
            return None
        given = codec.unpack(raw, limit=INPUT_LIMIT)
        if not isinstance(given, dict):
            raise Corrupt(f"the input of {task_id} is no object")
        return given

    async def titles(self, ids: Sequence[str], owner: str) -> dict[str, str]:
        """The titles of those of `ids` that are this owner's and have one, in one round trip."""
        known = [task_id for task_id in dict.fromkeys(ids) if keys.is_task_id(task_id)]
        with translated():
            async with self.redis.pipeline(transaction=False) as pipe:
                for task_id in known:
                    pipe.hmget(keys.key("task", task_id), "owner", "title")
                replies = await pipe.execute(raise_on_error=False) if known else []
        found: dict[str, str] = {}
        for task_id, reply in zip(known, replies, strict=True):
            if not isinstance(reply, list):  # a key of a wrong type harms only its task
                continue
            whose, title = reply
            if whose is not None and whose.decode() == owner and title:
                found[task_id] = title.decode("utf-8", "replace")
        return found

    async def items(self, task_id: str) -> dict[int, bytes]:
        """Results of a batch by index: the JSON of each item event."""
        with translated():
            raw = await self.redis.hgetall(keys.key("items", task_id))
        return {int(index): bytes(data) for index, data in raw.items()}

    async def events(
        self, task_id: str, after: str, *, count: int, inclusive: bool = False
    ) -> list[tuple[str, str, bytes]]:
        """Up to `count` events behind the id `after`, or from it on: (id, name, data). Entries that are not ours are
        left out."""
        start = after if inclusive else f"({after}"
        with translated():
            raw = await self.redis.xrange(keys.key("ev", task_id), min=start, count=count)
        return [
            (entry_id.decode(), fields[b"e"].decode(), fields[b"d"])
            for entry_id, fields in raw
            if fields and fields.get(b"e") in _NAMES and b"d" in fields
        ]

    async def history(self, task_id: str) -> list[tuple[str, str, bytes]]:
        """The task's changes of state, oldest first: (id, name, data) of its status events and of its end."""
        with translated():
            rows = await self.redis.lrange(keys.key("hist", task_id), 0, -1)
        parts = (row.split(b" ", 2) for row in rows)
        return [(event_id.decode(), name.decode(), data) for event_id, name, data in parts]

    async def has_event(self, task_id: str, event_id: str) -> bool:
        """Does the log know this id?"""
        with translated():
            return bool(await self.redis.xrange(keys.key("ev", task_id), event_id, event_id, count=1))

    async def snapshot(self, task_id: str) -> Snapshot | None:
        """The task's visible state at one moment, or None when there is no such task or its log is gone."""
        reply = await self.calls.call("snapshot", keys.key("task", task_id), task_id)
        if not reply or not reply[11]:
            return None
        (
            state,
            created,
            epoch,
            n,
            length,
            _bytes,
            attempts,
            reason,
            progress,
            text,
            marks,
            last,
            ckpt,
            retry,
            updated,
            items,
            rewound,
        ) = reply
        cut = [(e.decode(), int(b), int(c)) for e, b, c in (mark.split(b" ") for mark in marks)]
        fields = pairs(last[0][1])
        saved = None
        if all(value is not None for value in ckpt):
            saved = (ckpt[0].decode(), int(ckpt[1]), int(ckpt[2]), float(ckpt[3]), int(ckpt[4]))
        return Snapshot(
            State(state.decode()),
            EventId(int(created), 1),
            EventId(int(epoch), int(n)),
            int(attempts),
            reason.decode(),
            int(length),
            progress.decode(),
            text,
            cut,
            (last[0][0].decode(), fields["e"].decode(), fields["d"]),
            saved,
            int(retry or 0),
            int(updated or 0),
            int(items),
            int(rewound),
        )

    async def newest(self, ids: Sequence[str]) -> list[EventId | None]:
        """Id of the newest event of each task: the hub's safety check for pushes that were lost."""
        with translated():
            async with self.redis.pipeline(transaction=False) as pipe:
                for task_id in ids:
                    pipe.hmget(keys.key("task", task_id), "epoch", "n")
                replies = await pipe.execute()
        return [EventId(int(epoch), int(n)) if epoch and n else None for epoch, n in replies]
