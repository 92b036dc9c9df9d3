"""What is known of one watched task: its newest frames, in order and without holes. No Redis, no sockets.

n counts a task's events without holes through its whole life, so the numbers alone tell whether one is missing."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from unbroken.server import sse
from unbroken.server.sse import Entry
from unbroken.tasks.events import TERMINAL_EVENTS, EventId, parse_id

EARLY_MAX = 10_000  # pushes kept while a topic opens


class Watcher(Protocol):
    """One connection, as topics see it. None of these calls may raise or wait."""

    def wake(self) -> None:
        """There is something to do."""

    def beat(self) -> None:
        """Time for a heartbeat."""

    def end(self) -> None:
        """The server shuts down."""

    def write(self, data: bytes) -> bool:
        """Write frames at once. False when that cannot be done now; the watcher then asks for them itself."""


class Viewer:
    """A cursor into a topic: `epoch` and `n` of the last event that the connection was given."""

    __slots__ = ("epoch", "live", "n", "topic", "watcher")

    def __init__(self, topic: Topic, watcher: Watcher) -> None:
        self.topic = topic
        self.watcher = watcher
        self.epoch = 0
        self.n = 0
        self.live = False
        """Up to date, with nothing under way: the topic may write to it."""

    @property
    def at(self) -> EventId:
        """Where it stands."""
        return EventId(self.epoch, self.n)

    def move(self, to: EventId) -> None:
        """It was given everything up to `to`."""
        self.epoch, self.n = to.epoch, to.n


class Topic:
    """A ring of runs of frames: (first n, last n, frames)."""

    __slots__ = (
        "_size", "channel", "dirty", "early", "ended", "epoch", "filling", "gone", "idle_since", "last", "limit",
        "opened", "opening", "revived", "ring", "sent", "task_id", "viewers", "want",
    )  # fmt: skip

    def __init__(self, task_id: str, channel: bytes, limit: int) -> None:
        self.task_id = task_id
        self.channel = channel
        self.limit = limit
        self.viewers: dict[Viewer, None] = {}
        self.opening: asyncio.Task[None] | None = None
        self.opened = False
        self.early: list[bytes] = []
        self.ring: deque[tuple[int, int, bytes]] = deque()
        self._size = 0
        self.epoch = 0
        self.last = 0
        self.sent = 0
        """Up to which n the live viewers were served."""
        self.want = 0
        """The largest n that is known to exist."""
        self.ended = False
        """The newest event is a terminal one."""
        self.revived = 0
        """n of the newest terminal event that something followed: a dead letter that was replayed."""
        self.gone = False
        """Deleted, or Redis has lost events that viewers have seen: everybody must start over."""
        self.dirty = False
        self.filling = False
        self.idle_since = time.monotonic()

    @property
    def newest(self) -> EventId:
        """The newest event that is here."""
        return EventId(self.epoch, self.last)

    def open_at(self, newest: EventId) -> None:
        """The subscription stands and the record says `newest`: begin there."""
        self.epoch, self.last, self.sent = newest.epoch, newest.n, newest.n
        self.opened = True
        early, self.early = self.early, []
        for data in early:
            self.push(data)
        self.sent = self.last  # nobody is live yet

    def push(self, data: bytes) -> bool:
        """Take a message of append.lua's publish(). Returns whether there is something new to hand on.
        Raises ValueError for what is not such a message."""
        if not self.opened:
            if len(self.early) < EARLY_MAX:
                self.early.append(data)
            return False
        head, _, frames = data.partition(b"\n")
        first, last = map(int, head.split())
        epoch = sse.epoch_of(frames)
        if self._contradicts(first, epoch, frames):
            self.gone = True  # Redis went back in time
            return False
        if first != self.last + 1:
            if last > self.last:
                self.want = max(self.want, last)
            return False
        self._add(first, last, epoch, frames)
        return True

    def _contradicts(self, first: int, epoch: int, frames: bytes) -> bool:
        """Is this the push of another past? A push that is late or comes twice is none: it says what we have."""
        if first > self.last:
            claimed = frames.startswith(b"status\n", frames.index(b"\nevent: ") + 8)  # how each lease begins
            return first == self.last + 1 and (epoch < self.epoch or (epoch > self.epoch and not claimed))
        for begin, end, known in reversed(self.ring):
            if begin <= first <= end:
                mine = known if begin == first else b"".join(sse.split(known)[first - begin :])
                return not (mine.startswith(frames) or frames.startswith(mine))
        return epoch > self.epoch  # a new lease, and yet numbers from before

    def fill(self, entries: Sequence[Entry]) -> bool:
        """Take events of the log that follow the newest one."""
        found = False
        for event_id, name, data in entries:
            at = parse_id(event_id)
            if at.n <= self.last:
                self.gone = self.gone or at > self.newest  # else a push was quicker
                continue
            # an entry that is no event of ours still counts: it is in the log under this number
            self._add(at.n, at.n, at.epoch, sse.frame(event_id, name, data), ended=name in TERMINAL_EVENTS)
            found = True
        return found

    def _add(self, first: int, last: int, epoch: int, frames: bytes, ended: bool | None = None) -> None:
        self.ring.append((first, last, frames))
        self._size += len(frames)
        while self._size > self.limit and len(self.ring) > 1:
            self._size -= len(self.ring.popleft()[2])
        if self.ended:
            self.revived = self.last
        self.epoch, self.last = epoch, last
        self.ended = sse.ends(frames) if ended is None else ended

    def compare(self, was: EventId, newest: EventId | None) -> None:
        """Look at what the record says; `was` is our newest event of before it was asked."""
        if newest is None or newest.n < was.n or (newest.n == was.n and newest.epoch != was.epoch):
            self.gone = True
        else:
            self.want = max(self.want, newest.n)

    def knows(self, cursor: EventId) -> bool:
        """Is this id surely one of ours, with everything behind it in the ring?"""
        if cursor == self.newest:
            return True
        if not self.ring or cursor.n < self.ring[0][0]:
            return False
        needle = b"id: %d-%d\n" % (cursor.epoch, cursor.n)
        return any(first <= cursor.n <= last and needle in frames for first, last, frames in self.ring)

    def behind(self, n: int) -> bytes | None:
        """All frames after event `n` as one run, without an end that was not the end; None when the ring does not
        reach back so far."""
        if n >= self.last:
            return b""
        if not self.ring or self.ring[0][0] > n + 1:
            return None
        parts: list[bytes] = []
        for first, last, frames in reversed(self.ring):
            if first > n:
                parts.append(frames)
                continue
            if last > n:  # somewhere inside
                parts.extend(reversed(sse.split(frames)[n - first + 1 :]))
            break
        parts.reverse()
        data = b"".join(parts)
        return sse.without_ends(data) if n < self.revived else data

    def flush(self) -> int:
        """Hand the news to all viewers. Returns how many there are."""
        start, self.sent = self.sent, self.last
        data = self.behind(start)
        epoch, last, ended = self.epoch, self.last, self.ended
        for viewer in list(self.viewers):
            if viewer.live and data is not None and viewer.n == start and viewer.watcher.write(data):
                viewer.epoch, viewer.n = epoch, last
                if not ended:
                    continue
            viewer.watcher.wake()
        return len(self.viewers)

    def wake_all(self) -> None:
        """Something is different for everybody."""
        for viewer in list(self.viewers):
            viewer.watcher.wake()
