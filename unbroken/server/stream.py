"""The event stream of one connection: the past, then the present, until the end.

A subclass of sse-starlette's response that sheds its cost per event and per connection: frames are ready bytes, there
is no task besides the request's own, and while a viewer is up to date the topic writes to uvicorn's transport without
waking any task. Disconnect and shutdown behave as in the library (the hub watches its exit signal for all)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from unbroken.server import sse
from unbroken.server.auth import Caller
from unbroken.server.context import Services
from unbroken.server.problems import Problem, retry_after
from unbroken.server.replay import Page
from unbroken.server.topic import Viewer
from unbroken.server.wire import Wire, direct
from unbroken.tasks.errors import NotFound, StoreUnavailable
from unbroken.tasks.events import EventId

T = TypeVar("T")
SEND_S = 30.0  # a client that takes nothing for so long is gone
AWAY_S = 1.0  # between tries while Redis is away

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class Ended(Exception):
    """The connection is over: the client left, or the server shuts down."""


class Stream(EventSourceResponse):
    """What all streams share: the connection. Subclasses say what comes."""

    def __init__(self, services: Services, who: Caller) -> None:
        # The library's constructor prepares per-event encoding, pings and a task group, none of which is used here.
        self.services = services
        self.who = who
        self.status_code = 200
        self.background = None
        self.raw_headers = HEADERS
        self.active = True
        self._news = asyncio.Event()
        self._beating = False
        self._send: Send | None = None
        self._wire: Wire | None = None
        self._quiet = False

    # Watcher: called by topics and the hub

    def wake(self) -> None:
        """There is something to do."""
        self._news.set()

    def end(self) -> None:
        """The server shuts down, or the viewer may not stay."""
        self.active = False
        self._news.set()

    def beat(self) -> None:
        """Time for a heartbeat."""
        if not (self._quiet and self.write(sse.HEARTBEAT)):
            self._beating = True
            self._news.set()

    def write(self, data: bytes) -> bool:
        """Write at once, past ASGI, where that is possible."""
        return self._wire is not None and self._wire.write(data)

    # the response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(head)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        services = self.services
        if services.hub.closing:
            await Problem(503, "The server restarts.", headers=retry_after(1)).response()(scope, receive, send)
            return
        if not services.streams.enter(self.who.owner):
            detail = "Too many streams are open for this key; close some, or put several tasks on one stream."
            await Problem(429, detail, headers=retry_after(10)).response()(scope, receive, send)
            return
        services.hub.enter(self)
        leaving: asyncio.Task[None] | None = None
        try:
            self._send = send
            await send(head)
            ms = services.settings.retry_ms
            await self.put(sse.retry(random.randint(ms, ms * 2)))  # noqa: S311
            leaving = self._listen(scope, receive)
            with contextlib.suppress(Ended):
                await self.run()
            await self._finish()
        finally:
            if leaving is not None:
                leaving.cancel()
            services.hub.exit(self)
            services.streams.leave(self.who.owner)

    async def run(self) -> None:
        """Send what the stream is about. Returns at its end, raises Ended with the connection's."""
        raise NotImplementedError

    def _listen(self, scope: Scope, receive: Receive) -> asyncio.Task[None] | None:
        """Learn of the client's leaving: from uvicorn's own event, or else from a task that waits in `receive`."""
        self._wire = wire = direct(scope)
        if wire is None:
            return asyncio.create_task(self._wait_for_the_end(receive))
        self._news = wire.news
        self._news.set()  # look once: it may have left already
        return None

    async def _wait_for_the_end(self, receive: Receive) -> None:
        while self.active:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.end()

    async def _finish(self) -> None:
        self._quiet = False
        assert self._send is not None
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(SEND_S):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if self._wire is not None:
            self._wire.abort()

    async def put(self, data: bytes) -> None:
        """Send bytes; waits while the client does not read. Raises Ended."""
        if not self.active:
            raise Ended
        if self.write(data):
            return
        assert self._send is not None
        try:
            async with asyncio.timeout(SEND_S):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except (TimeoutError, OSError):
            if self._wire is not None:
                self._wire.abort()
            self.active = False
            raise Ended from None

    async def news(self, timeout_s: float | None = None) -> None:
        """Wait until woken, with heartbeats. Raises Ended."""
        if timeout_s is None:
            await self._news.wait()
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
        self._news.clear()
        if not self.active or (self._wire is not None and self._wire.left):
            raise Ended
        if self._beating:
            self._beating = False
            await self.put(sse.HEARTBEAT)

    async def settled(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of some work; heartbeats go on meanwhile. Raises Ended, and what the work raises."""
        asking = asyncio.create_task(work)
        asking.add_done_callback(self._settled)
        try:
            while not asking.done():
                await self.news()
            return asking.result()
        finally:
            asking.cancel()

    def _settled(self, work: asyncio.Task[Any]) -> None:
        if not work.cancelled():
            work.exception()  # looked at, also when the client left before
        self.wake()

    async def patiently(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask Redis, again and again while it is away. Raises Ended."""
        while True:
            try:
                return await self.settled(ask())
            except StoreUnavailable:
                await self.news(AWAY_S * random.uniform(0.5, 1.5))  # noqa: S311

    async def watch(self, task_id: str) -> Viewer | None:
        """Join a task, however long Redis is away. None when it does not exist any more. Raises Ended."""
        hub = self.services.hub
        while True:
            viewer = hub.join(task_id, self)
            ready = False
            try:
                if not viewer.topic.opened:
                    await self.settled(hub.opened(viewer))
                ready = True
                return viewer
            except NotFound:
                return None
            except StoreUnavailable:
                await self.news(AWAY_S * random.uniform(0.5, 1.5))  # noqa: S311
            finally:
                if not ready:
                    hub.leave(viewer)


class TaskStream(Stream):
    """One task. cursor: None = from the start."""

    def __init__(self, services: Services, who: Caller, task_id: str, cursor: EventId | None) -> None:
        super().__init__(services, who)
        self._task_id = task_id
        self._cursor = cursor

    async def run(self) -> None:
        """The past, then the present."""
        viewer: Viewer | None = None
        try:
            viewer = await self.watch(self._task_id)
            if viewer is not None and not await self._past(viewer):
                await self._present(viewer)
        finally:
            if viewer is not None:
                self.services.hub.leave(viewer)

    async def _past(self, viewer: Viewer) -> bool:
        """Returns whether that was all."""
        cursor, replayer = self._cursor, self.services.replayer
        self.services.count_replay()
        if cursor is not None and viewer.topic.knows(cursor):
            viewer.move(cursor)
            return False
        page: Page | None = None
        if cursor is not None:
            page = await self.patiently(lambda: replayer.after(self._task_id, cursor, viewer.topic.last))
        if page is None:
            again = cursor is not None
            page = await self.patiently(lambda: replayer.start(self._task_id, viewer.topic.last, again=again))
        if page is None:
            return True  # the log is gone; asked again, the answer says so
        return await self._give(viewer, page)

    async def _give(self, viewer: Viewer, page: Page) -> bool:
        for data in page.writes:
            await self.put(data)
        viewer.move(page.at)
        return page.ended

    async def _present(self, viewer: Viewer) -> None:
        topic = viewer.topic
        while True:
            if topic.gone:
                return  # the client comes back and starts over
            data = topic.behind(viewer.n)
            if data is None:
                if await self._catch_up(viewer):
                    return
            elif data:
                at, ended = topic.newest, topic.ended
                await self.put(data)
                viewer.move(at)
                if ended:
                    return
            elif topic.ended and viewer.n == topic.last:
                return
            else:
                viewer.live = self._quiet = True
                try:
                    await self.news()
                finally:
                    viewer.live = self._quiet = False

    async def _catch_up(self, viewer: Viewer) -> bool:
        """Fallen out of the ring: from the log."""
        page = await self.patiently(lambda: self.services.replayer.after(self._task_id, viewer.at, viewer.topic.last))
        if page is None:
            viewer.topic.gone = True
            return False
        return await self._give(viewer, page)
