"""What passes between a worker and Redis: the lease, what a claim brings along, and what is appended under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unbroken.tasks import codec, keys
from unbroken.tasks.connection import Arg
from unbroken.tasks.errors import Corrupt


@dataclass(slots=True)
class Known:
    """n: number of the newest event that Redis told of."""

    n: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a task: the fencing token of every write. Each write also says how much its lease was told of:
    a Redis that knows less went back in time, and nothing is put on top of that."""

    task_id: str
    epoch: str
    token: str
    known: Known = field(default_factory=Known, compare=False, repr=False)

    @property
    def args(self) -> tuple[str, str, str, int]:
        """As every fenced script takes it."""
        return self.task_id, self.epoch, self.token, self.known.n

    def heard(self, n: bytes) -> None:
        """A reply told of events up to `n`."""
        self.known.n = max(self.known.n, int(n))

    @property
    def key(self) -> str:
        """The record's key."""
        return keys.key("task", self.task_id)


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One generation of a checkpoint as stored. `where` is 'inline' or the key of an object; offset in code points."""

    event_id: str
    offset: int
    where: str
    sealed: codec.Sealed


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task that this worker now holds."""

    lease: Lease
    record: Mapping[str, bytes]
    input: bytes
    checkpoints: Sequence[StoredCheckpoint]
    """Newest first, at most two."""
    saved: int = 0
    """How many generations are stored, also those that lack a part."""

    def num(self, name: str) -> int:
        """A number of the record."""
        raw = self.record.get(name, b"")
        return int(float(raw)) if raw else 0

    def text(self, name: str) -> str:
        """A text of the record."""
        return self.record.get(name, b"").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Event:
    """One event to append: name, encoded data, and a note that stays in the log."""

    name: str
    data: bytes
    aux: bytes = b""


@dataclass(frozen=True, slots=True)
class Batch:
    """One append. at: byte offset where `text` (UTF-8) goes; length: code points of all text afterwards."""

    number: int
    at: int
    text: bytes
    length: int
    progress: float
    done: int
    total: int | None
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Last:
    """The last text that goes with an end: see Batch. `at` -1 says nothing about the text: it stays as it is."""

    at: int
    text: bytes = b""
    length: int = 0
    events: Sequence[Event] = field(default=())

    def args(self) -> list[Arg]:
        """Number of events, then name, data, aux of each."""
        return flat_events(self.events)


def flat_events(events: Sequence[Event]) -> list[Arg]:
    """As the scripts take events."""
    args: list[Arg] = [len(events)]
    for event in events:
        args += [event.name, event.data, event.aux]
    return args


def checkpoints(fields: Mapping[str, bytes]) -> list[StoredCheckpoint]:
    """The stored generations, newest first. One that lacks a field is kept out, as a torn one is not a checkpoint."""
    found = []
    for which in ("a", "b"):
        try:
            part = {name: fields[f"{which}.{name}"] for name in _STORED}
            if int(part["v"]) != codec.VERSION:
                raise Corrupt("unknown envelope version")
            sealed = codec.Sealed(
                part["codec"].decode(),
                int(part["schema"]),
                int(part["raw"]),
                part["sha256"].decode(),
                part["data"],
            )
            found.append(StoredCheckpoint(part["event"].decode(), int(part["offset"]), part["where"].decode(), sealed))
        except (KeyError, ValueError, Corrupt):
            continue
    return found


_STORED = ("v", "codec", "schema", "raw", "sha256", "data", "event", "offset", "where")
