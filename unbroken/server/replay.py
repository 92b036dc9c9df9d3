"""The past of a task as few frames, read once for all who ask in the same moment.

Two ways: a page of the log, folded; or, for whoever is far behind, the stored text itself (story.py). Either way every
frame's id says exactly what is contained (see sse.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unbroken.server import sse
from unbroken.server.shared import Shared
from unbroken.server.sse import Entry
from unbroken.server.story import Cut, Story, tell
from unbroken.tasks.events import CHUNK, TERMINAL_EVENTS, ZERO, EventId, parse_id
from unbroken.tasks.store import Store

PAGE = 1_000  # events of one read
LONG = 500  # events from which the text is cheaper than the log
NEAR = 16  # events behind a cursor among which there should be a chunk
CHUNK_LINE = b"\nevent: chunk\n"


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
        self._pages: Shared[Page | None] = Shared()
        self._stories: Shared[Story | None] = Shared()

    @property
    def reads(self) -> int:
        """Pages and stories really read."""
        return self._pages.reads + self._stories.reads

    @property
    def asked(self) -> int:
        """Pages and stories asked for."""
        return self._pages.asked + self._stories.asked

    async def start(self, task_id: str, n: int, *, again: bool = False) -> Page | None:
        """From the beginning; there are at least `n` events. None: the log is gone.
        again: for a viewer that may hold text of a past that is not in the log; it is taken back."""
        story = await self._story(task_id, n) if n > LONG else None
        page: Page | None
        if story is not None:
            page = Page(story.writes, story.newest, ended=story.ended)
        else:
            page = await self._page(task_id, ZERO, n)
        if page is None or not page.writes or not again or any(CHUNK_LINE in data for data in page.writes):
            return page  # its first chunk begins at 0
        return replace(page, writes=(sse.nothing(page.writes[0]), *page.writes))

    async def after(self, task_id: str, cursor: EventId, n: int) -> Page | None:
        """The events behind `cursor`, at most one page; there are at least `n`. None: the log does not know this id."""
        if n - cursor.n > LONG and (page := await self._leap(task_id, cursor, n)):
            return page
        return await self._page(task_id, cursor, n)

    async def _page(self, task_id: str, cursor: EventId, n: int) -> Page | None:
        # What merely ends early goes on from the ring; an end that was none must not be told.
        return await self._pages.get(
            (task_id, cursor),
            lambda: self._from_log(task_id, cursor),
            lambda page: page is not None and not (page.ended and page.at.n < n),
        )

    async def _from_log(self, task_id: str, cursor: EventId) -> Page | None:
        known = cursor != ZERO
        size = PAGE - cursor.n % PAGE  # pages end at round numbers, so that viewers of different cursors share them
        entries = await self._store.events(task_id, str(cursor), count=size + 2, inclusive=known)
        if known:
            if not entries or parse_id(entries[0][0]) != cursor:
                return None
            entries = entries[1:]
        elif not entries:
            return None
        return page(entries, cursor, size)

    async def _story(self, task_id: str, n: int) -> Story | None:
        return await self._stories.get(
            task_id,
            lambda: self._tell(task_id),
            lambda story: story is None or not (story.ended and story.newest.n < n),
        )

    async def _tell(self, task_id: str) -> Story | None:
        snapshot = await self._store.snapshot(task_id)
        if snapshot is None or snapshot.items:
            return None
        return await tell(snapshot, lambda cut: self._between(task_id, cut))

    async def _leap(self, task_id: str, cursor: EventId, n: int) -> Page | None:
        """All that follows `cursor` in one step, where the text alone tells it; else None."""
        entries = await self._store.events(task_id, str(cursor), count=NEAR, inclusive=True)
        if not entries or parse_id(entries[0][0]) != cursor:
            return None
        chunk = next((data for _, name, data in entries[1:] if name == CHUNK), None)
        read = None if chunk is None else sse.read_chunk(chunk)
        story = await self._story(task_id, n) if read else None
        if read is None or story is None or story.newest <= cursor:
            return None
        frames = story.after(cursor, read[0])
        return None if frames is None else Page(sse.gather(frames), story.newest, ended=story.ended)

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


def page(entries: Sequence[Entry], cursor: EventId, size: int = PAGE) -> Page:
    """Fold up to `size` events that follow `cursor`."""
    some = entries[:size]
    if not some:
        return Page((), cursor)
    more = len(entries) > len(some)
    last_id, name, _ = some[-1]
    frames = sse.gather(sse.fold(some, more=more))
    return Page(frames, parse_id(last_id), more, not more and name in TERMINAL_EVENTS)
