"""Events as frames, and the fold of many events into few. Pure: no clock, no network.

The rule that everything here keeps: whoever has applied all frames up to a frame with id X stands exactly where
somebody stands who applied every event of the log up to X. So a viewer may reconnect from any id it ever got."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from unbroken.tasks import events
from unbroken.tasks.events import CHECKPOINT, CHUNK, NAMES, PROGRESS, STATUS, TERMINAL_EVENTS, EventId, parse_id

Entry = tuple[str, str, bytes]
"""One event of the log: id, name, data."""

HEARTBEAT = b":\n"  # no blank line: several clients would see an empty message
MAX_FRAME = 64 * 1024  # bytes of a merged frame
_ROOM = MAX_FRAME - 256  # for everything that is not text
_LATEST_ONLY = frozenset({STATUS, PROGRESS, CHECKPOINT})
_ENDS = tuple(f"\nevent: {name}\n".encode() for name in sorted(TERMINAL_EVENTS))
CURSOR_MAX = 40  # characters; two 16-digit numbers fit


def retry(ms: int) -> bytes:
    """Tell the client how long to wait before it reconnects. No blank line: it goes with the first event."""
    return b"retry: %d\n" % ms


def frame(event_id: str, name: str, data: bytes) -> bytes:
    """One event on the wire; b"" for what is not an event of ours (a foreign entry in the log harms nobody)."""
    if name not in NAMES or b"\n" in data or b"\r" in data or not data.startswith(b"{"):
        return b""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), name.encode(), data)


def nothing(frames: bytes) -> bytes:
    """A frame to go before these: takes back all text, as before the first event of the task (there is no event 0)."""
    return frame(f"{epoch_of(frames)}-0", CHUNK, events.chunk(0, "", 0))


def ends(frames: bytes) -> bool:
    """Is the last frame a terminal event? Data is one line, so the pattern cannot come from a model's text."""
    last = frames.rfind(b"\nevent: ")
    return last >= 0 and frames.startswith(_ENDS, last)


def epoch_of(frames: bytes) -> int:
    """The epoch of the first frame."""
    return int(frames[4 : frames.index(b"-", 4)])


def last_id(frames: bytes) -> EventId:
    """The id of the last frame."""
    start = frames.rfind(b"\n\nid: ", 0, len(frames) - 2)
    start = 4 if start < 0 else start + 6
    return parse_id(frames[start : frames.index(b"\n", start)].decode())


def split(frames: bytes) -> list[bytes]:
    """Single frames of a run of frames."""
    return [one + b"\n\n" for one in frames.split(b"\n\n") if one]


def parse_cursor(raw: str | None) -> EventId | None:
    """A client's cursor: None, "" and "-1" mean from the start. Raises ValueError when malformed."""
    if raw is None or raw in ("", "-1"):
        return None
    if len(raw) > CURSOR_MAX:
        raise ValueError("this cursor is too long")
    return parse_id(raw)


@dataclass(slots=True)
class _Pending:
    """Chunks that grow together until something else must go out."""

    last: str
    offset: int
    parts: list[str]
    length: int  # code points
    size: int  # encoded bytes, at most
    progress: float

    def text(self) -> str:
        return "".join(self.parts)


def without_ends(frames: bytes) -> bytes:
    """The same run, less each terminal event that is not the last one (a dead letter that was replayed at once)."""
    parts = split(frames)
    return b"".join(one for at, one in enumerate(parts) if at == len(parts) - 1 or not ends(one))


class Folder:
    """Merges neighbouring chunks and leaves out what later events replace."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self._pending: _Pending | None = None

    def add(self, entry: Entry, *, keep: bool) -> None:
        """Take the next event; `keep` False leaves it out (for all but chunks)."""
        event_id, name, data = entry
        if name == CHUNK:
            self._chunk(event_id, data)
        elif keep and (ready := frame(event_id, name, data)):
            self.flush()
            self.out.append(ready)

    def flush(self) -> None:
        """Let the pending text go out as it is."""
        p, self._pending = self._pending, None
        if p is not None:
            self.out.append(frame(p.last, CHUNK, events.chunk(p.offset, p.text(), p.progress)))

    def _chunk(self, event_id: str, data: bytes) -> None:
        read = read_chunk(data)
        if read is None:
            return
        offset, text, progress = read
        p = self._pending
        if p is not None:
            if offset < p.offset:
                p = self._pending = None  # all of it is taken back
            elif offset < p.offset + p.length:
                kept = p.text()[: offset - p.offset]
                p.parts, p.length = [kept], len(kept)
            # What cannot be joined: a gap, a frame that is full, a cut in the middle of a surrogate pair.
            if p is not None and (
                offset > p.offset + p.length or p.size + len(data) > _ROOM or _open_pair(p.parts[-1])
            ):
                self.flush()
                p = None
        if p is None:
            self._pending = _Pending(event_id, offset, [text], len(text), len(data), progress)
            return
        p.parts.append(text)
        p.length += len(text)
        p.size += len(data)
        p.last, p.progress = event_id, progress


def _open_pair(text: str) -> bool:
    return "\ud800" <= text[-1:] <= "\udbff"


def read_chunk(data: bytes) -> tuple[int, str, float] | None:
    """Offset, text and progress of a chunk's data; None for what is not such data."""
    try:
        value: Any = json.loads(data)
        offset, text, progress = value["offset"], value["text"], value.get("progress", 0)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if type(offset) is not int or offset < 0 or not isinstance(text, str) or isinstance(progress, bool):
        return None
    if not isinstance(progress, (int, float)) or not 0 <= progress <= 1:
        progress = 0
    return offset, text, float(progress)


def fold(entries: Sequence[Entry], *, more: bool = False) -> list[bytes]:
    """Frames that say the same as these events: chunks merged up to 64 KiB, superseded status, progress and
    checkpoint left out, and an end that was not the end (a dead letter that was replayed). more: others follow."""
    kept: set[int] = set()
    seen: set[str] = set()
    newest = len(entries) - 1
    for at in range(newest, -1, -1):
        name = entries[at][1]
        if name in _LATEST_ONLY:
            if name not in seen:
                kept.add(at)
                seen.add(name)
        elif name not in TERMINAL_EVENTS or (at == newest and not more):
            kept.add(at)
    folder = Folder()
    for at, entry in enumerate(entries):
        folder.add(entry, keep=at in kept)
    folder.flush()
    return folder.out


def gather(frames: Iterable[bytes], size: int = MAX_FRAME) -> list[bytes]:
    """Join small frames so that they go out in few writes of about `size` bytes."""
    out: list[bytes] = []
    run: list[bytes] = []
    length = 0
    for one in frames:
        if run and length + len(one) > size:
            out.append(b"".join(run))
            run, length = [], 0
        run.append(one)
        length += len(one)
    if run:
        out.append(b"".join(run))
    return out
