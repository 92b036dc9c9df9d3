"""One reader for a whole process: what a task publishes goes from here to everybody who watches it.

    Redis ── push ──▶ feed ──▶ topic (one for each watched task: the newest frames, in order, without holes)
                                 └─▶ viewers, each only a cursor

The log in Redis is the truth. A push is the fast path: a hole in the numbers is filled from the log, and every few
seconds each topic is compared with the record, so a push that was lost costs a moment and never an event (G2, G3)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Any

from unbroken.server.topic import Topic, Viewer, Watcher
from unbroken.tasks import keys
from unbroken.tasks.errors import NotFound, StoreUnavailable
from unbroken.tasks.feed import Feed
from unbroken.tasks.store import Store

log = logging.getLogger("unbroken.hub")
CHECK_S = 3.0  # how long a lost push can cost
LINGER_S = 1.0  # a topic without viewers stays this long: most come back at once
PAGE = 1_000  # events of one read of the log
SLICE = 512  # viewers served before others get their turn
BUSY_S = 0.005  # a round that took longer is followed by a rest, about as long
REST_MAX_S = 0.02
HEART_PARTS = 20  # heartbeats are spread over the interval in so many portions


class Hub:
    """All watched tasks of this process."""

    def __init__(self, store: Store, *, ring: int, heartbeat_s: float) -> None:
        self.store = store
        self.ring = ring
        self.heartbeat_s = heartbeat_s
        self.topics: dict[bytes, Topic] = {}
        self.watchers: dict[Watcher, int] = {}
        self.checked = time.monotonic()
        self.frames = 0
        """Pushes handed on so far."""
        self.holes = 0
        """Holes found and filled so far."""
        self.closing = False
        self.feed = Feed(store.redis, on_message=self._message, on_round=self._flush, on_up=self._up)
        self._dirty: list[Topic] = []
        self._work: set[asyncio.Task[None]] = set()
        self._look = asyncio.Event()
        self._beat = 0

    # life

    def start(self) -> list[asyncio.Task[None]]:
        """Start the loops. Cancel them to stop."""
        return [
            asyncio.create_task(self.feed.run(), name="feed"),
            asyncio.create_task(self._check_loop(), name="hub-check"),
            asyncio.create_task(self._heart_loop(), name="hub-heart"),
        ]

    # viewers

    def enter(self, watcher: Watcher) -> None:
        """A connection is there; it gets heartbeats from now on."""
        self.watchers[watcher] = self._beat = (self._beat + 1) % HEART_PARTS

    def exit(self, watcher: Watcher) -> None:
        """It is gone."""
        self.watchers.pop(watcher, None)

    def join(self, task_id: str, watcher: Watcher) -> Viewer:
        """Watch a task; `leave` ends it. Only after `opened` is it sure that nothing is missed."""
        channel = keys.key("feed", task_id).encode()
        topic = self.topics.get(channel)
        if topic is None or topic.gone:
            topic = self.topics[channel] = Topic(task_id, channel, self.ring)
            topic.opening = self._spawn(self._open(topic))
        viewer = Viewer(topic, watcher)
        topic.viewers[viewer] = None
        return viewer

    async def opened(self, viewer: Viewer) -> None:
        """From the moment this returns nothing that is appended is missed. Raises StoreUnavailable, NotFound."""
        opening = viewer.topic.opening
        assert opening is not None
        await asyncio.shield(opening)

    def leave(self, viewer: Viewer) -> None:
        """Stop watching."""
        topic = viewer.topic
        topic.viewers.pop(viewer, None)
        if not topic.viewers:
            topic.idle_since = time.monotonic()

    async def _open(self, topic: Topic) -> None:
        try:
            await self.feed.subscribe(topic.channel)
            newest = (await self.store.newest([topic.task_id]))[0]
            if newest is None:
                raise NotFound(topic.task_id)
        except BaseException:
            topic.gone = True
            if self.topics.get(topic.channel) is topic:
                del self.topics[topic.channel]
                self.feed.unsubscribe(topic.channel)
            raise
        topic.open_at(newest)
        self._after_push(topic)

    # from Redis

    def _message(self, channel: bytes, data: bytes) -> None:
        topic = self.topics.get(channel)
        if topic is None:
            return
        try:
            if topic.push(data):
                self._mark(topic)
        except ValueError:
            log.warning("a push for %s could not be read", topic.task_id)
            topic.want = max(topic.want, topic.last + 1)
        self._after_push(topic)

    def _mark(self, topic: Topic) -> None:
        self.frames += 1
        if not topic.dirty:
            topic.dirty = True
            self._dirty.append(topic)

    def _after_push(self, topic: Topic) -> None:
        if topic.gone:
            self._dirty.append(topic)
        elif topic.want > topic.last and not topic.filling and topic.opened:
            topic.filling = True
            self._spawn(self._fill(topic))

    async def _fill(self, topic: Topic) -> None:
        """Read from the log what the pushes left out."""
        self.holes += 1
        try:
            while topic.want > topic.last and not topic.gone:
                entries = await self.store.events(topic.task_id, str(topic.newest), count=PAGE)
                if not entries:
                    # Either a push promised too much, or the log lost what the record counts; then: start over.
                    was, newest = topic.newest, (await self.store.newest([topic.task_id]))[0]
                    topic.gone = newest is None or newest != was
                    topic.want = topic.last
                    break
                if topic.fill(entries):
                    self._mark(topic)
            if topic.gone:
                self._dirty.append(topic)
            await self._flush()
        except StoreUnavailable:
            pass  # the next push or check asks again
        finally:
            topic.filling = False

    async def _flush(self) -> None:
        """Hand what has come to all viewers: one write for each connection and round."""
        dirty, self._dirty = self._dirty, []
        began, served = time.monotonic(), 0
        for topic in dirty:
            if topic.gone:
                topic.wake_all()
                continue
            topic.dirty = False
            served += topic.flush()
            if served >= SLICE:
                served = 0
                await asyncio.sleep(0)
        # The cost is in the number of writes: under load a short rest lets more come together for the next round.
        if (took := time.monotonic() - began) > BUSY_S:
            await asyncio.sleep(min(took, REST_MAX_S))

    def _up(self) -> None:
        self._look.set()

    # loops

    async def _check_loop(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._look.wait()
            asked, now = self._look.is_set(), time.monotonic()
            self._look.clear()
            try:
                self._drop_idle(now)
                if asked or now - self.checked >= CHECK_S:
                    await self._check()
                    self.checked = time.monotonic()
            except StoreUnavailable:
                pass  # readyz tells
            except Exception:
                log.exception("the hub's check stumbled")

    def _drop_idle(self, now: float) -> None:
        idle = [t for t in self.topics.values() if not t.viewers and t.opened and now - t.idle_since >= LINGER_S]
        for topic in idle:
            topic.gone = True
            del self.topics[topic.channel]
        self.feed.unsubscribe(*(topic.channel for topic in idle))

    async def _check(self) -> None:
        """Compare every topic with its record."""
        opened = [topic for topic in self.topics.values() if topic.opened]
        if not opened:
            await self.store.time_ms()  # so that silence of Redis is noticed without viewers too
        for at in range(0, len(opened), PAGE):
            some = opened[at : at + PAGE]
            before = [topic.newest for topic in some]
            for topic, was, newest in zip(
                some, before, await self.store.newest([t.task_id for t in some]), strict=True
            ):
                topic.compare(was, newest)
                if topic.gone and self.topics.get(topic.channel) is topic:
                    del self.topics[topic.channel]
                    self.feed.unsubscribe(topic.channel)
                self._after_push(topic)
            await self._flush()

    async def _heart_loop(self) -> None:
        part = 0
        while True:
            await asyncio.sleep(self.heartbeat_s / HEART_PARTS)
            part = (part + 1) % HEART_PARTS
            for watcher in [w for w, mine in self.watchers.items() if mine == part]:
                watcher.beat()

    async def drain(self, seconds: float) -> None:
        """Shutting down: close the streams spread over at most `seconds`."""
        self.closing = True
        watchers = list(self.watchers)
        pause = min(seconds / max(1, len(watchers)), 0.005)
        for watcher in watchers:
            watcher.end()
            await asyncio.sleep(pause)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it; nobody else needs to
