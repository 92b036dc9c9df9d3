"""Events: their names, their ids, their data as encoded JSON. Pure.

An event is encoded once, by whoever writes it; from then on only bytes are handed on."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

STATUS, CHUNK, PROGRESS, ITEM, CHECKPOINT = "status", "chunk", "progress", "item", "checkpoint"
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
TERMINAL_EVENTS = frozenset({DONE, FAILED, CANCELLED})
NAMES = frozenset({STATUS, CHUNK, PROGRESS, ITEM, CHECKPOINT}) | TERMINAL_EVENTS

# One chunk's text stays below this, so that its frame stays below 64 KiB however it is escaped
# (a character outside the BMP takes 12 bytes as escaped JSON).
MAX_CHUNK = 4_096

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999  # the end of the year 9999: ISO 8601 and Python's calendar say nothing later

_ID = re.compile(r"^(\d{1,16})-(\d{1,16})\Z", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class EventId:
    """`<epoch>-<n>`: epoch in Redis milliseconds, n counting 1, 2, 3 through the whole life of the task."""

    epoch: int
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.n}"


ZERO = EventId(0, 0)


def parse_id(raw: str) -> EventId:
    """Read an id. Raises ValueError for anything that is not exactly two decimal numbers; leading zeros are refused,
    since two spellings of one id would compare differently."""
    match = _ID.match(raw)
    if not match:
        raise ValueError("an event id looks like 1767225600000-12")
    epoch, n = match.groups()
    if (len(epoch) > 1 and epoch[0] == "0") or (len(n) > 1 and n[0] == "0"):
        raise ValueError("an event id has no leading zeros")
    return EventId(int(epoch), int(n))


def encode(data: dict[str, Any]) -> bytes:
    """One line of ASCII JSON. Raises ValueError for NaN and infinities, which are not JSON."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


_escape = json.encoder.encode_basestring_ascii


def chunk(offset: int, text: str, progress: float) -> bytes:
    """Data of a chunk event; written by hand because it is the hot path. `offset` counts code points."""
    return f'{{"offset":{offset},"text":{_escape(text)},"progress":{progress:.4g}}}'.encode("ascii")


def clean(text: str) -> str:
    """Text that UTF-8 can carry: surrogate pairs are joined, lone surrogates become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def split(text: str, size: int = MAX_CHUNK) -> list[str]:
    """Cut text into pieces of at most `size` code points."""
    return [text[i : i + size] for i in range(0, len(text), size)]


def sha256(text: bytes) -> str:
    """Hex digest that `done` carries, over the UTF-8 bytes of the result."""
    return hashlib.sha256(text).hexdigest()


def iso(ms: int | None) -> str | None:
    """Redis milliseconds as ISO 8601 UTC with milliseconds; what lies beyond the calendar is its last moment."""
    if ms is None:
        return None
    at = EPOCH + timedelta(milliseconds=max(0, min(ms, LAST_MS)))
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
