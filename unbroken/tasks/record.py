"""A task as Redis holds it and as the world sees it. Pure.

The public object never holds the input's or the result's text: polling stays cheap."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from unbroken.tasks.errors import Corrupt
from unbroken.tasks.events import iso
from unbroken.tasks.state import TERMINAL, State

CHECKPOINT_FIELDS = ("a.event", "a.offset", "a.progress", "a.size", "a.at", "a.where")
_STATES = frozenset(State)


def share(raw: str | float) -> float:
    """A progress that JSON can carry. Raises ValueError for what is no number, NaN and infinities."""
    value = float(raw)
    if not math.isfinite(value):
        raise ValueError("a progress is a finite number")
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def pairs(flat: Sequence[bytes]) -> dict[str, bytes]:
    """Redis' flat field, value, field, value as a dict."""
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What is saved, never the data. Times in Redis milliseconds, size in bytes, offset in code points."""

    event_id: str
    offset: int
    progress: float
    size: int
    saved_ms: int
    where: str

    def view(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "event_id": self.event_id,
            "offset": self.offset,
            "progress": share(self.progress),
            "size": self.size,
            "saved_at": iso(self.saved_ms),
            "where": "inline" if self.where == "inline" else "object",
        }

    @classmethod
    def read(cls, values: Sequence[bytes | None]) -> CheckpointInfo | None:
        """From the values of CHECKPOINT_FIELDS."""
        event, offset, progress, size, at, where = values
        if event is None or offset is None or progress is None or size is None or at is None or where is None:
            return None
        return cls(event.decode(), int(offset), float(progress), int(size), int(at), where.decode())


@dataclass(frozen=True, slots=True)
class Task:
    """The record. Times are Redis milliseconds; 0 means never."""

    id: str
    fields: Mapping[str, bytes]
    checkpoint: CheckpointInfo | None = None
    now: int = 0

    def __post_init__(self) -> None:
        if not all(name in self.fields for name in ("owner", "state", "kind", "epoch", "n")):
            raise Corrupt(f"the record of {self.id} is incomplete")
        if self.text("state") not in _STATES:
            raise Corrupt(f"{self.id} is {self.text('state')[:40]!r}: no state that this version knows")

    def text(self, name: str) -> str:
        """A field as text; '' when absent."""
        return self.fields.get(name, b"").decode("utf-8", "replace")

    def num(self, name: str) -> int:
        """A field as a whole number; 0 when absent or empty."""
        raw = self.fields.get(name, b"")
        return int(float(raw)) if raw else 0

    @property
    def state(self) -> State:
        """Where the task is."""
        return State(self.text("state"))

    @property
    def terminal(self) -> bool:
        """Has it ended?"""
        return self.state in TERMINAL

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.text("owner")

    @property
    def kind(self) -> str:
        """What sort of task it is."""
        return self.text("kind")

    @property
    def last_event_id(self) -> str:
        """Id of the newest event of the log."""
        return f"{self.text('epoch')}-{self.text('n')}"

    @property
    def stale(self) -> bool:
        """Processing, and its lease has run out: a pure function of stored times and Redis' clock."""
        return self.state is State.PROCESSING and 0 < self.num("lease_until") < self.now

    @property
    def error(self) -> dict[str, Any] | None:
        """The stored error of the last failure, as the owner may see it."""
        raw = self.fields.get("error", b"")
        if not raw:
            return None
        value = json.loads(raw, parse_constant=_no_number)
        return value if isinstance(value, dict) else None

    def _callback(self) -> dict[str, Any] | None:
        """What came of the callback that was asked for: `said` is "delivered", or what went wrong the last time."""
        if not self.text("callback"):
            return None
        return {"tries": self.num("callback_tries"), "said": self.text("callback_state") or None}

    def view(self) -> dict[str, Any]:
        """The public task object."""
        at = f"/api/tasks/{self.id}"
        total = self.text("total")
        return {
            "task_id": self.id,
            "kind": self.kind,
            "state": self.state.value,
            "reason": self.text("reason") or None,
            "sender": self.text("sender") or None,
            "topic": self.text("topic") or None,
            "priority": self.text("priority"),
            "attempts": self.num("attempts"),
            "errors": self.num("errors"),
            "max_attempts": self.num("max_attempts"),
            "crashes": self.num("crashes"),
            "max_crashes": self.num("max_crashes"),
            "recovery": self.text("recovery"),
            "timeout_s": self.num("timeout_ms") / 1000,
            "progress": share(self.text("progress") or 0),
            "done": self.num("done"),
            "total": int(total) if total else None,
            "unit": self.text("unit"),
            "length": self.num("length"),
            "last_event_id": self.last_event_id,
            "checkpoint": self.checkpoint.view() if self.checkpoint else None,
            "stale": self.stale,
            "error": self.error,
            "warning": self.text("warning") or None,
            "retry_at": iso(self.num("retry_at") or None),
            "created_at": iso(self.num("created")),
            "started_at": iso(self.num("started") or None),
            "updated_at": iso(self.num("updated") or None),
            "finished_at": iso(self.num("finished") or None),
            "cached": self.text("cached") == "1",
            "callback": self._callback(),
            "links": {
                "self": at,
                "stream": f"{at}/stream",
                "result": f"{at}/result",
                "checkpoint": f"{at}/checkpoint",
            },
        }
