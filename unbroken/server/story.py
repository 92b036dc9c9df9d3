"""The stored text of a task as frames: for whoever is far behind, instead of thousands of events.

The text is cut at marks of which the event is known, so every frame's id says exactly what is contained (see sse.py).
Pure, but for reading the events of one append that is larger than a frame."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from unbroken.server import sse
from unbroken.tasks import events
from unbroken.tasks.events import CHECKPOINT, CHUNK, PROGRESS, STATUS, EventId, iso
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


@dataclass(frozen=True, slots=True)
class Note:
    """An event that is told as it is, and where the text was then (characters)."""

    at: EventId
    chars: int
    frame: bytes


def before(event_id: EventId) -> EventId:
    """The event before one that is not the first of its epoch (that is always the status of a claim)."""
    return EventId(event_id.epoch, event_id.n - 1)


def notes(snapshot: Snapshot, length: int) -> list[Note]:
    """What is told besides the text: the newest checkpoint and the newest counts, each where it stands, and the newest
    event. A claim's status is not among them: whoever stands in its lease knows it, others are told at the start."""
    found: dict[EventId, Note] = {}
    if snapshot.checkpoint is not None:
        at, offset, progress, saved = snapshot.checkpoint
        data = events.encode({"offset": offset, "progress": progress, "saved_at": iso(saved)})
        found[at] = Note(at, offset, sse.frame(str(at), CHECKPOINT, data))
    if snapshot.counts is not None:
        at, data, chars = snapshot.counts
        found[at] = Note(at, chars, sse.frame(str(at), PROGRESS, data))
    raw, name, data = snapshot.last
    claimed = name == STATUS and snapshot.state is State.PROCESSING
    if name != CHUNK and not claimed:
        found.setdefault(snapshot.newest, Note(snapshot.newest, length, sse.frame(raw, name, data)))
    found.pop(snapshot.first, None)
    return sorted(found.values(), key=lambda note: note.at)


def arrange(snapshot: Snapshot, text: str) -> list[Cut | Note] | None:
    """Text and notes in the order of their ids, each where it belongs. None: the text alone does not tell it (it was
    taken back behind a note since, so that where the note stood is not there any more)."""
    out: list[Cut | Note] = []
    chars, since = 0, snapshot.first
    for note in notes(snapshot, len(text)):
        end = before(note.at)
        if note.at.n < snapshot.rewound or note.at > snapshot.newest or not chars <= note.chars <= len(text):
            return None
        if end > since:
            out += cuts(snapshot, text, (chars, since), (note.chars, end))
        elif note.chars > chars:
            return None
        out.append(note)
        chars, since = note.chars, note.at
    if since < snapshot.newest:
        out += cuts(snapshot, text, (chars, since), (len(text), snapshot.newest))
    return out


Place = tuple[int, EventId]
"""Characters, and the event at which the text was so long."""


def cuts(snapshot: Snapshot, text: str, begin: Place, end: Place) -> list[Cut]:
    """The text between two places in pieces of at most 64 KiB, as far as the marks allow."""
    found: list[Cut] = []
    start, since = begin
    between = [(c, at) for at, c in snapshot.marks if begin[0] < c <= end[0] and begin[1] < at < end[1]]
    for chars, at in [*between, end]:
        piece = escape(text[start:chars])
        last = found[-1] if found else None
        if last is not None and len(last.escaped) + len(piece) <= ROOM:
            found[-1] = Cut(last.start, chars, last.since, at, last.escaped + piece)
        else:
            found.append(Cut(start, chars, since, at, piece))
        start, since = chars, at
    return found


def escape(text: str) -> str:
    """The inside of a JSON string, in ASCII."""
    return json.encoder.encode_basestring_ascii(text)[1:-1]


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

        The text only grew since, so it goes on exactly there; and of what was said within one lease, all that counts is
        in the parts."""
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


async def tell(snapshot: Snapshot, between: Between) -> Story | None:
    """Cut the text of a snapshot into frames. None: the text alone does not tell all."""
    text = snapshot.text.decode("utf-8", "replace")
    arranged = arrange(snapshot, text)
    if arranged is None or not snapshot.stated:
        return None
    share = min(1.0, float(snapshot.progress or 0))
    parts = [Part(snapshot.first, (sse.frame(str(snapshot.first), STATUS, snapshot.stated),))]
    for piece in arranged:
        if isinstance(piece, Note):
            parts.append(Part(piece.at, (piece.frame,)))
        elif len(piece.escaped) > ROOM:  # one append larger than a frame: its own events say where to cut
            parts.append(Part(piece.at, tuple(await between(piece))))
        elif piece.escaped or piece.at == snapshot.newest:
            parts.append(Part(piece.at, (piece.frame(share),), piece))
    writes = sse.gather([frame for part in parts for frame in part.frames])
    return Story(snapshot, text, parts, writes, share)
