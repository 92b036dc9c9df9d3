"""A task's event stream without any network: bytes in, events out, events folded into text. Pure.

The rules are section 5 of the contract: a chunk says where it belongs, so applying one twice does no harm, a
smaller offset takes text back, and one beyond the end means that something was missed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LINE_MAX = 16 * 1024 * 1024  # bytes; a frame is at most 64 KiB, so more is not a stream of ours
TERMINAL = {"done": "completed", "failed": "failed", "cancelled": "cancelled"}


class NotOurs(ValueError):
    """What came is not a stream of this kind."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its id (opaque), its name, its decoded data."""

    id: str
    name: str
    data: Mapping[str, Any]


@dataclass
class Parser:
    """A push parser for text/event-stream: `feed` it bytes cut anywhere, get the events that are complete.

    Comments (heartbeats) give nothing. LF, CR LF and CR end a line. `retry_ms` is the server's last wish."""

    retry_ms: int | None = None
    last_id: str = ""
    _rest: bytes = b""
    _name: str = ""
    _data: list[str] = field(default_factory=list)
    _after_cr: bool = False

    def feed(self, block: bytes) -> list[Event]:
        """Take the next bytes. Raises NotOurs for data that is not JSON or a line without end."""
        if self._after_cr and block.startswith(b"\n"):
            block = block[1:]  # the second half of a CR LF that was cut in two
        if block:
            self._after_cr = block.endswith(b"\r")
        # All bytes so far that end a line; the lines are UTF-8 one by one, so a character is never cut.
        *lines, self._rest = (self._rest + block).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > LINE_MAX:
            raise NotOurs("a line without end")
        return [event for line in lines if (event := self._line(line.decode("utf-8", "replace")))]

    def _line(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name or "message", "\n".join(self._data)
        had_data = bool(self._data)
        self._name, self._data = "", []
        if not had_data:
            return None
        try:
            decoded = json.loads(data)
        except ValueError:
            raise NotOurs(f"an event {name!r} whose data is not JSON") from None
        if not isinstance(decoded, dict):
            raise NotOurs(f"an event {name!r} whose data is not an object")
        return Event(self.last_id, name, decoded)


@dataclass
class Fold:
    """What a viewer holds: the text, and what was last said about everything else."""

    state: str = ""
    reason: str | None = None
    retry_at: str | None = None
    error: Mapping[str, Any] | None = None
    progress: float = 0.0
    done: int | None = None
    total: int | None = None
    unit: str | None = None
    saved: int = 0
    items: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    last_id: str = ""
    length: int = 0
    rewinds: int = 0
    ended: str | None = None
    end: Mapping[str, Any] = field(default_factory=dict)
    _parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def apply(self, event: Event) -> bool:
        """Apply one event. False: something was missed, begin again from the start (with a new Fold)."""
        data = event.data
        match event.name:
            case "chunk":
                if not self._chunk(int(data["offset"]), str(data["text"])):
                    return False
                self.progress = float(data.get("progress") or self.progress)
            case "status":
                self.state = str(data["state"])
                self.reason, self.retry_at = data.get("reason"), data.get("retry_at")
            case "progress":
                self.progress = float(data.get("progress") or 0)
                self.done, self.total, self.unit = data.get("done"), data.get("total"), data.get("unit")
            case "item":
                self.items[int(data["index"])] = data
            case "checkpoint":
                self.saved = int(data.get("offset") or 0)
            case name if name in TERMINAL:
                self.ended = self.state = TERMINAL[name]
                self.error, self.end = data.get("error"), data
        self.last_id = event.id or self.last_id
        return True

    def _chunk(self, offset: int, text: str) -> bool:
        if offset > self.length or offset < 0:
            return False
        if offset < self.length:
            self.rewinds += 1
            self._parts = [self.text[:offset]]
        self._parts.append(text)
        self.length = offset + len(text)
        return True

    def proven(self) -> bool:
        """Whether the text is the one that `done` speaks of, by length and SHA-256. With items the result is not
        the text, and says nothing about it."""
        if self.items:
            return True
        length, digest = self.end.get("length"), self.end.get("sha256")
        if length is not None and length != self.length:
            return False
        return digest is None or digest == hashlib.sha256(self.text.encode("utf-8")).hexdigest()
