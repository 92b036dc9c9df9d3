"""From updates to batches: one Writer per task gathers text and events, one Pump per process sends them.

The first text goes at once, later text is grouped for `flush_ms`. The appends of all tasks that are ready share one
round trip. A batch whose answer was lost is sent again under its own number until Redis answers (G14)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from unbroken.tasks import codec, events
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.holder import Holder, wish
from unbroken.tasks.lease import Batch, Claimed, Event, Last
from unbroken.worker.pump import Pump

UNFLUSHED_MAX = 256 * 1024  # bytes of text that may wait for Redis before the model is not asked for more
PROGRESS_EVERY_S = 1.0
FULL_FOR_S = 10.0  # how long a full Redis is waited for


@dataclass(slots=True)
class _Open:
    """The chunk that is being gathered. tokens None: not all are known, so none are said."""

    offset: int
    mark: int | None = None
    parts: list[str] = field(default_factory=list)
    size: int = 0
    tokens: list[int] | None = field(default_factory=list)

    def note(self) -> bytes:
        """What stays in the log beside the chunk."""
        note: dict[str, object] = {}
        if self.tokens:
            note["t"] = self.tokens
        if self.mark is not None:
            note["m"] = self.mark
        return codec.pack(note) if note else b""


class Writer:
    """The text of one run on its way into the log. `text`: what the log holds at the claim (UTF-8)."""

    def __init__(
        self,
        claimed: Claimed,
        holder: Holder,
        pump: Pump,
        text: bytes,
        *,
        on_wish: Callable[[str], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.lease = claimed.lease
        self._holder = holder
        self._pump = pump
        self._on_wish = on_wish
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._flush_s = holder.settings.flush_ms / 1000
        self.unit = claimed.text("unit")
        self.done = claimed.num("done")
        self.total: int | None = claimed.num("total") if claimed.text("total") else None
        self.bytes = len(text)
        self.chars = len(text.decode("utf-8", "replace"))
        self._hash = hashlib.sha256(text)
        self._held = ""  # a high surrogate whose other half has not come yet
        self._open = _Open(self.chars)
        self._events: list[Event] = []
        self._at = self.bytes
        self._raw = bytearray()
        self._number = 0
        self._inflight: Batch | None = None
        self._sent = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._shown = (self.done, self.total)
        self._shown_at = self._loop.time()
        self._full_since = 0.0
        self._closed = False
        self._finished = False
        self.error: Exception | None = None
        self._moved = asyncio.Event()  # something was answered, or nothing will be

    # what the run yields

    def add(self, text: str, tokens: tuple[int, ...] = (), mark: int | None = None, count: int = 1) -> None:
        """More text. Never waits."""
        if self.unit == "tokens":
            self.done += count
        if self._held or not text.isascii():
            text = self._whole(self._held + text)
        raw = text.encode()
        chunk = self._open
        if chunk.parts and (mark != chunk.mark or chunk.size + len(text) > events.MAX_CHUNK):
            self._close_chunk()
            chunk = self._open
        chunk.mark = mark
        if chunk.tokens is not None:
            if text and not tokens:
                chunk.tokens = None
            else:
                chunk.tokens.extend(tokens)
        if not text:
            return
        chunk.parts.append(text)
        chunk.size += len(text)
        self._raw += raw
        self._hash.update(raw)
        self.bytes += len(raw)
        self.chars += len(text)
        self._soon()

    def _whole(self, text: str) -> str:
        """Text that UTF-8 can carry; a high surrogate at the end waits for what follows it."""
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return events.clean(text)

    def progress(self, done: int, total: int | None) -> None:
        """How far the work is."""
        self.done, self.total = done, total
        self._soon()

    def finish(self) -> None:
        """The work is done: viewers end with the counts of the record, also where less came than was allowed."""
        self._finished = True
        if self.unit == "tokens":
            self.total = self.done
        self.show_progress()

    def item_set(self) -> None:
        """One more item is set; the script that set it has told the viewers."""
        self.done += 1
        self._shown = (self.done, self.total)

    @property
    def fraction(self) -> float:
        """Progress from 0 to 1; 0 while the total is unknown."""
        if self._finished:
            return 1.0
        return min(1.0, max(0.0, self.done / self.total)) if self.total else 0.0

    def end_text(self) -> None:
        """Nothing follows a waiting half of a pair any more."""
        if self._held:
            self._held = ""
            self.add("\ufffd", count=0)

    @property
    def digest(self) -> str:
        """SHA-256 of all text, as hex."""
        return self._hash.hexdigest()

    @property
    def unflushed(self) -> int:
        """Bytes that Redis has not confirmed."""
        return len(self._raw) + (len(self._inflight.text) if self._inflight else 0)

    async def rewind(self, offset: int) -> None:
        """Take the text back to `offset` code points. Viewers see it with the next batch."""
        self._held = ""
        await self.flush()
        if not 0 <= offset <= self.chars:
            raise ValueError(f"a rewind to {offset} in a text of {self.chars}")
        if offset == self.chars:
            return
        raw = await self._pump.patiently(lambda: self._holder.text(self.lease.task_id))
        kept = raw.decode("utf-8", "replace")[:offset].encode()
        self._hash = hashlib.sha256(kept)
        self._at = self.bytes = len(kept)
        self.chars = offset
        self._open = _Open(offset)
        self._events.append(Event(events.CHUNK, events.chunk(offset, "", self.fraction)))
        self._soon()

    # waiting

    async def flush(self) -> None:
        """Wait until the log has everything. Raises what ended the run (LeaseLost, ...)."""
        while True:
            self._moved.clear()
            if self.error is not None:
                raise self.error
            if self._inflight is None and not self._pending():
                return
            self._cancel_timer()
            self._pump.ready(self)
            await self._moved.wait()

    async def room(self) -> None:
        """Wait while too much is unconfirmed, or until `wake`."""
        if self.unflushed > UNFLUSHED_MAX and self.error is None:
            self._moved.clear()
            self._pump.ready(self)
            await self._moved.wait()
        if self.error is not None:
            raise self.error

    def wake(self) -> None:
        """Let a waiting `room` return."""
        self._moved.set()

    async def settle(self) -> Last:
        """Stop appending: wait for the batch on its way, and hand over what comes after it, to be written with the
        end. Raises LeaseLost or Broken."""
        self.end_text()
        self._closed = True
        self._cancel_timer()
        while self._inflight is not None and self.error is None:
            self._moved.clear()
            self._pump.ready(self)
            await self._moved.wait()
        full = isinstance(self.error, StoreUnavailable)
        if self.error is not None and not full:
            raise self.error
        self._close_chunk()
        before = self._inflight
        if before is None:
            return Last(self._at, bytes(self._raw), self.chars, tuple(self._events))
        # Redis was full: the batch was refused, and goes with the release, which it takes even so
        raw = before.text[: max(0, self._at - before.at)] + bytes(self._raw)
        return Last(min(before.at, self._at), raw, self.chars, (*before.events, *self._events))

    # the pump's side

    def next_batch(self) -> Batch | None:
        """What to send now: the unanswered batch again, or a new one."""
        if self.error is not None:
            return None
        if self._inflight is None and not self._closed and self._pending():
            self._inflight = self._take()
        return self._inflight

    def answered(self, reply: object) -> None:
        """The reply to the batch on its way."""
        try:
            asked = wish(reply)
        except StoreUnavailable as error:
            self._unanswered(error)
            return
        except Exception as error:
            self.fail(error)
            return
        self._full_since = 0.0
        self._inflight = None
        self._moved.set()
        if asked:
            self._on_wish(asked)
        if self._pending():
            self._soon()

    def fail(self, error: Exception) -> None:
        """Nothing can be written any more."""
        if self.error is None:
            self.error = error
            self._cancel_timer()
            self._moved.set()
            self._on_error(error)

    def _unanswered(self, error: StoreUnavailable) -> None:
        now = self._loop.time()
        self._full_since = (self._full_since or now) if error.full else 0.0
        if self._full_since and now - self._full_since > FULL_FOR_S:
            self.fail(error)
        else:
            self._loop.call_later(0.2, self._pump.ready, self)

    # inside

    def _pending(self) -> bool:
        return bool(self._raw or self._events or self._open.parts) or self._progress_due()

    def _progress_due(self) -> bool:
        return (self.done, self.total) != self._shown and self._loop.time() - self._shown_at >= PROGRESS_EVERY_S

    def _soon(self) -> None:
        if self._timer is not None or self._inflight is not None or self._closed or self.error is not None:
            return
        wait = self._sent + self._flush_s - self._loop.time()
        if wait <= 0:
            self._pump.ready(self)
        else:
            self._timer = self._loop.call_later(wait, self._due)

    def _due(self) -> None:
        self._timer = None
        self._pump.ready(self)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_chunk(self) -> None:
        chunk = self._open
        if not chunk.parts:
            return
        text = "".join(chunk.parts)
        pieces = [text] if len(text) <= events.MAX_CHUNK else events.split(text)
        if len(pieces) > 1:  # one huge piece: its ids cannot be told apart
            chunk.tokens = None
        note, offset = chunk.note(), chunk.offset
        for piece in pieces:
            self._events.append(Event(events.CHUNK, events.chunk(offset, piece, self.fraction), note))
            offset += len(piece)
        self._open = _Open(offset)

    def show_progress(self) -> None:
        """Put a progress event into the next batch (with every checkpoint), if there is something new to say."""
        if (self.done, self.total) != self._shown:
            self._shown, self._shown_at = (self.done, self.total), self._loop.time()
            data = {"progress": round(self.fraction, 4), "done": self.done, "total": self.total, "unit": self.unit}
            self._close_chunk()
            self._events.append(Event(events.PROGRESS, events.encode(data)))

    def forget_tokens(self) -> None:
        """A checkpoint is made here and holds all ids so far: those that wait for their text must not follow it."""
        self._close_chunk()
        self._open = _Open(self.chars)

    def _take(self) -> Batch:
        self._close_chunk()
        if self._progress_due():
            self.show_progress()
        self._number += 1
        self._sent = self._loop.time()
        batch = Batch(
            self._number,
            self._at,
            bytes(self._raw),
            self.chars,
            self.fraction,
            self.done,
            self.total,
            self._events,
        )
        self._events = []
        self._raw = bytearray()
        self._at = self.bytes
        return batch
