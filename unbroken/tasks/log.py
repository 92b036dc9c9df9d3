"""Reading a task's log: its events, its text, and both as they were at one moment. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unbroken.tasks import codec, keys
from unbroken.tasks.connection import Calls, translated
from unbroken.tasks.errors import Corrupt
from unbroken.tasks.events import NAMES, STATUS, EventId, parse_id
from unbroken.tasks.record import pairs
from unbroken.tasks.state import State

INPUT_LIMIT = 64 * 1024 * 1024  # bytes that are decoded; far above what a submit may hold
_NAMES = frozenset(name.encode() for name in NAMES)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task's whole visible state at one moment, for a late viewer.

    marks: (event id, characters) where the text may be cut. last: id, name and data of the newest event. stated: data
    of the newest status. checkpoint: (event id, characters, progress, saved ms) or None. counts: id and data of the
    newest progress event, and the length of the text at it (-1: not found out). items: how many results a batch has.
    rewound: number of the last event that took text back."""

    state: State
    first: EventId
    newest: EventId
    progress: str
    rewound: int
    items: int
    text: bytes
    marks: list[tuple[EventId, int]]
    last: tuple[str, str, bytes]
    checkpoint: tuple[EventId, int, float, int] | None
    stated: bytes
    counts: tuple[EventId, bytes, int] | None


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
        if not reply or not reply[9]:
            return None
        state, created, epoch, n, progress, rewound, items, text, marks, last, ckpt, changes, counts = reply
        fields = pairs(last[0][1])
        saved = None
        if all(value is not None for value in ckpt):
            saved = (parse_id(ckpt[0].decode()), int(ckpt[1]), float(ckpt[2]), int(ckpt[3]))
        stated = [data for _, name, data in (row.split(b" ", 2) for row in changes) if name == STATUS.encode()]
        return Snapshot(
            state=State(state.decode()),
            first=EventId(int(created), 1),
            newest=EventId(int(epoch), int(n)),
            progress=progress.decode(),
            rewound=int(rewound),
            items=int(items),
            text=text,
            marks=[(parse_id(at.decode()), int(chars)) for at, _, chars in (mark.split(b" ") for mark in marks)],
            last=(last[0][0].decode(), fields["e"].decode(), fields["d"]),
            checkpoint=saved,
            stated=stated[-1] if stated else b"",
            counts=(parse_id(counts[0].decode()), counts[1], int(counts[2])) if counts else None,
        )

    async def newest(self, ids: Sequence[str]) -> list[EventId | None]:
        """Id of the newest event of each task: the hub's safety check for pushes that were lost."""
        with translated():
            async with self.redis.pipeline(transaction=False) as pipe:
                for task_id in ids:
                    pipe.hmget(keys.key("task", task_id), "epoch", "n")
                replies = await pipe.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, Exception) and not str(reply).startswith("WRONGTYPE"):
                    raise reply
        return [_newest(reply) for reply in replies]


def _newest(reply: Any) -> EventId | None:
    """None also for a damaged record: it harms only its own viewers."""
    if isinstance(reply, Exception) or not all(reply):
        return None
    try:
        return EventId(*map(int, reply))
    except ValueError:
        return None
