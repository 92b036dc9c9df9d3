"""The stored text of a task as frames: for whoever is far behind, instead of thousands of events.

The text is cut at marks of which the event is known, so every frame's id says exactly what is contained (see sse.py).
Pure, but for reading the events of one append that is larger than a frame."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from unbroken.server import sse
from unbroken.tasks import events
from unbroken.tasks.events import CHECKPOINT, CHUNK, STATUS, EventId, iso, parse_id
from unbroken.tasks.log import Snapshot
from unbroken.tasks.state import TERMINAL, State

ROOM = sse.MAX_FRAME - 256  # of a frame, for escaped text


@dataclass(frozen=True, slots=True)
class Cut:
    """A piece of text: characters start..stop, escaped, complete at the event `at`; `since` is the cut before."""

    start: int
    stop: int
    since: EventId
    at: EventId
    escaped: str

    def frame(self, progress: float) -> bytes:
        """As one chunk."""
        data = f'{{"offset":{self.start},"text":"{self.escaped}","progress":{progress:.4g}}}'
        return sse.frame(str(self.at), CHUNK, data.encode("ascii"))


Saved = tuple[EventId, int, bytes]
"""The newest checkpoint: id, offset, data of its event."""


def before(event_id: EventId) -> EventId:
    """The event before one that is not the first of its epoch (that is always the status of a claim)."""
    return EventId(event_id.epoch, event_id.n - 1)


def cuts(snapshot: Snapshot, text: str, saved: Saved | None) -> list[Cut]:
    """The text in pieces of at most 64 KiB as far as the marks allow; one ends exactly at the checkpoint."""
    length, newest = len(text), snapshot.newest
    # What comes behind the text takes the newest id; the text then ends one event before.
    end = newest if snapshot.last[1] in (CHUNK, STATUS) else before(newest)
    if saved is not None and saved[0] == newest:
        end, length = before(newest), saved[1]
    points = [(chars, parse_id(raw)) for raw, _, chars in snapshot.marks]
    must = before(saved[0]) if saved else None
    if saved is not None and must is not None:
        points.append((saved[1], must))
    found: list[Cut] = []
    start, since = 0, snapshot.first
    for chars, event_id in [*sorted(p for p in points if p[0] <= length and p[1] < end), (length, end)]:
        if event_id <= since or (chars <= start and event_id not in (must, end)):
            continue
        piece = escape(text[start:chars])
        last = found[-1] if found else None
        if last is not None and last.at != must and len(last.escaped) + len(piece) <= ROOM:
            found[-1] = Cut(last.start, chars, last.since, event_id, last.escaped + piece)
        else:
            found.append(Cut(start, chars, since, event_id, piece))
        start, since = chars, event_id
    return found


def escape(text: str) -> str:
    """The inside of a JSON string, in ASCII."""
    return json.encoder.encode_basestring_ascii(text)[1:-1]


def checkpoint(snapshot: Snapshot, length: int) -> Saved | None:
    """The newest checkpoint as (id, offset, data), if it can be placed in the text."""
    if snapshot.checkpoint is None:
        return None
    raw, offset, _, progress, at = snapshot.checkpoint
    event_id = parse_id(raw)
    if offset > length or event_id > snapshot.newest:
        return None
    for mark, _, chars in snapshot.marks:
        if (chars <= offset) != (parse_id(mark) < event_id):
            return None  # the text was rewound behind it since
    return event_id, offset, events.encode({"offset": offset, "progress": progress, "saved_at": iso(at)})


def status(snapshot: Snapshot) -> bytes:
    """The newest status as far as the record tells; of an ended task, the one it had before."""
    state = snapshot.state
    if state in TERMINAL:
        state = State.PROCESSING
    data: dict[str, Any] = {"state": state.value, "attempt": snapshot.attempt}
    if snapshot.reason:
        data["reason"] = snapshot.reason
    if snapshot.retry_at and state is State.RECOVERING:
        data["retry_at"] = iso(snapshot.retry_at)
    data["at"] = iso(snapshot.updated)
    return events.encode(data)


@dataclass(frozen=True, slots=True)
class Part:
    """Frames that are complete at the event `at`. cut: the text they are, if it fits one frame."""

    at: EventId
    frames: Sequence[bytes]
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """All of it."""

    snapshot: Snapshot
    text: str
    parts: Sequence[Part]
    writes: Sequence[bytes]
    """From the start."""
    progress: float

    @property
    def newest(self) -> EventId:
        """Everything up to here is contained."""
        return self.snapshot.newest

    @property
    def ended(self) -> bool:
        """The last event is a terminal one."""
        return self.snapshot.state in TERMINAL

    def after(self, cursor: EventId, offset: int) -> list[bytes] | None:
        """What follows `cursor`, where the text was `offset` characters long. None: cannot be told from the text.

        The text only grew since, so it goes on exactly there; and within one lease the state is what it was."""
        if cursor.epoch != self.snapshot.newest.epoch or cursor.n < self.snapshot.rewound:
            return None
        out: list[bytes] = []
        for part in self.parts:
            if part.at <= cursor:
                continue
            cut = part.cut
            if cut is not None and cut.since <= cursor:
                if not cut.start <= offset <= cut.stop:
                    return None
                rest = Cut(offset, cut.stop, cursor, cut.at, self._escaped(cut, offset))
                if rest.escaped or cut.at == self.snapshot.newest:
                    out.append(rest.frame(self.progress))
            elif cut is None and len(part.frames) > 1:
                return None
            else:
                out.extend(part.frames)
        return out

    def _escaped(self, cut: Cut, offset: int) -> str:
        """What `cut` holds from `offset` on; escaping is most of a viewer's cost here, so as little as possible."""
        if len(cut.escaped) == cut.stop - cut.start:  # nothing in it was escaped
            return cut.escaped[offset - cut.start :]
        if offset - cut.start < cut.stop - offset:
            return cut.escaped[len(escape(self.text[cut.start : offset])) :]
        return escape(self.text[offset : cut.stop])


Between = Callable[[Cut], Awaitable[Sequence[bytes]]]
"""Reads the frames of a cut that does not fit one frame."""


async def tell(snapshot: Snapshot, between: Between) -> Story:
    """Cut the text of a snapshot into frames."""
    text = snapshot.text.decode("utf-8", "replace")
    saved = checkpoint(snapshot, len(text))
    share = min(1.0, float(snapshot.progress or 0))
    parts = [Part(snapshot.first, (sse.frame(str(snapshot.first), STATUS, status(snapshot)),))]
    for cut in cuts(snapshot, text, saved):
        if len(cut.escaped) > ROOM:  # one append larger than a frame: its own events say where to cut
            parts.append(Part(cut.at, tuple(await between(cut))))
        elif cut.escaped or cut.at == snapshot.newest:
            parts.append(Part(cut.at, (cut.frame(share),), cut))
        if saved is not None and cut.at == before(saved[0]):
            parts.append(Part(saved[0], (sse.frame(str(saved[0]), CHECKPOINT, saved[2]),)))
    last_id, name, data = snapshot.last
    if name not in (CHUNK, STATUS, CHECKPOINT):
        parts.append(Part(parse_id(last_id), (sse.frame(last_id, name, data),)))
    writes = sse.gather([frame for part in parts for frame in part.frames])
    return Story(snapshot, text, parts, writes, share)
