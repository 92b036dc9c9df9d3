"""The past of a task as few frames, read once for all who ask in the same moment.

Two ways: a page of the log, folded; or, for a long log read from its start, the stored text itself, cut at marks of
which the event is known. Either way every frame's id says exactly what is contained (see sse.py)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from unbroken.server import sse
from unbroken.server.sse import Entry
from unbroken.tasks import events
from unbroken.tasks.events import CHECKPOINT, CHUNK, STATUS, TERMINAL_EVENTS, ZERO, EventId, iso, parse_id
from unbroken.tasks.state import TERMINAL, State
from unbroken.tasks.store import Snapshot, Store

PAGE = 1_000  # events of one read
LONG = 500  # events from which the text is cheaper than the log
ROOM = sse.MAX_FRAME - 256  # of a frame, for escaped text
SHARED_S = 0.1  # how long an answer serves others; the ring has what came since


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the past. `writes`: frames, joined so that they go out in few writes. at: everything up to here is
    contained. more: the log goes on. ended: the last event is a terminal one."""

    writes: Sequence[bytes]
    at: EventId
    more: bool = False
    ended: bool = False


class Replayer:
    """Reads pages; simultaneous readers of the same page share one read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shared: dict[tuple[str, str], asyncio.Task[Page | None]] = {}
        self.reads = 0
        """Pages really read."""
        self.asked = 0
        """Pages asked for."""

    async def start(self, task_id: str, n: int) -> Page | None:
        """From the beginning; there are at least `n` events. None: the log is gone."""
        if n > LONG:
            return await self._share((task_id, "text"), n, lambda: self._from_text(task_id))
        return await self.after(task_id, ZERO, n)

    async def after(self, task_id: str, cursor: EventId, n: int) -> Page | None:
        """The events behind `cursor`, at most one page; there are at least `n`. None: the log does not know this id."""
        return await self._share((task_id, str(cursor)), n, lambda: self._from_log(task_id, cursor))

    async def _share(
        self, key: tuple[str, str], n: int, read: Callable[[], Coroutine[Any, Any, Page | None]]
    ) -> Page | None:
        self.asked += 1
        task = self._shared.get(key)
        if task is None or _stale(task, n):
            self.reads += 1
            task = self._shared[key] = asyncio.create_task(read())
            task.add_done_callback(lambda done: self._later(key, done))
        return await asyncio.shield(task)

    def _later(self, key: tuple[str, str], done: asyncio.Task[Page | None]) -> None:
        def forget() -> None:
            if self._shared.get(key) is done:
                del self._shared[key]

        failed = done.cancelled() or done.exception() is not None
        asyncio.get_running_loop().call_later(0 if failed else SHARED_S, forget)

    async def _from_log(self, task_id: str, cursor: EventId) -> Page | None:
        known = cursor != ZERO
        entries = await self._store.events(task_id, str(cursor), count=PAGE + 2, inclusive=known)
        if known:
            if not entries or parse_id(entries[0][0]) != cursor:
                return None
            entries = entries[1:]
        elif not entries:
            return None
        return page(entries, cursor)

    async def _from_text(self, task_id: str) -> Page | None:
        snapshot = await self._store.snapshot(task_id)
        if snapshot is None or snapshot.items:
            return await self._from_log(task_id, ZERO)
        frames = [frame async for frame in self._frames(task_id, snapshot)]
        return Page(sse.gather(frames), snapshot.newest, ended=snapshot.state in TERMINAL)

    async def _frames(self, task_id: str, snapshot: Snapshot) -> AsyncIterator[bytes]:
        text = snapshot.text.decode("utf-8", "replace")
        saved = checkpoint(snapshot, len(text))
        share = min(1.0, float(snapshot.progress or 0))
        yield sse.frame(str(snapshot.first), STATUS, status(snapshot))
        for cut in cuts(snapshot, text, saved):
            if len(cut.escaped) > ROOM:  # one append larger than a frame: its own events say where to cut
                for frame in await self._between(task_id, cut):
                    yield frame
            elif cut.escaped or cut.at == snapshot.newest:
                yield cut.frame(share)
            if saved is not None and cut.at == before(saved[0]):
                yield sse.frame(str(saved[0]), CHECKPOINT, saved[2])
        last_id, name, data = snapshot.last
        if name not in (CHUNK, STATUS, CHECKPOINT):
            yield sse.frame(last_id, name, data)

    async def _between(self, task_id: str, cut: Cut) -> list[bytes]:
        chunks: list[Entry] = []
        at, reached = cut.since, False
        while not reached:
            entries = await self._store.events(task_id, str(at), count=PAGE)
            for entry in entries:
                at = parse_id(entry[0])
                reached = at >= cut.at
                if entry[1] == CHUNK and at <= cut.at:
                    chunks.append(entry)
                if reached:
                    break
            reached = reached or len(entries) < PAGE
        return sse.fold(chunks)


def _stale(task: asyncio.Task[Page | None], n: int) -> bool:
    """Must it be read again? What merely ends early goes on from the ring; an end that was none must not be told."""
    if not task.done():
        return False
    if task.cancelled() or task.exception() is not None:
        return True
    known = task.result()
    return known is None or (known.ended and known.at.n < n)


def page(entries: Sequence[Entry], cursor: EventId) -> Page:
    """Fold up to PAGE events that follow `cursor`."""
    some = entries[:PAGE]
    if not some:
        return Page((), cursor)
    more = len(entries) > len(some)
    last_id, name, _ = some[-1]
    return Page(sse.gather(sse.fold(some)), parse_id(last_id), more, not more and name in TERMINAL_EVENTS)


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
