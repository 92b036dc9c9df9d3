"""Several tasks on one connection, because browsers allow six per host on HTTP/1.1.

The same events, with `task_id` in the data. The id is a vector: for each task that something was said about, eight
letters that stand for it and its own cursor; so a client may ask for more or fewer tasks with the same cursor."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from unbroken.server import sse
from unbroken.server.auth import Caller
from unbroken.server.context import Services
from unbroken.server.replay import Page
from unbroken.server.stream import Stream
from unbroken.server.topic import Viewer
from unbroken.tasks.events import EventId, parse_id

_PART = re.compile(r"^([0-9a-f]{8}):(\d{1,16}-\d{1,16})\Z", re.ASCII)
VECTOR_MAX = 64 * 1024  # characters


def mark(task_id: str) -> str:
    """The letters that stand for a task."""
    return hashlib.sha256(task_id.encode()).hexdigest()[:8]


def parse_vector(raw: str | None) -> dict[str, EventId]:
    """A client's cursor; {} for None, "" and "-1". Raises ValueError when malformed."""
    if raw is None or raw in ("", "-1"):
        return {}
    if len(raw) > VECTOR_MAX:
        raise ValueError("this cursor is too long")
    found: dict[str, EventId] = {}
    for part in raw.split(","):
        match = _PART.match(part)
        if not match:
            raise ValueError("a cursor of several tasks looks like 0a1b2c3d:1767225600000-12,...")
        found[match[1]] = parse_id(match[2])
    return found


def vector(cursors: dict[str, str]) -> bytes:
    """The id of a frame."""
    return ",".join(f"{short}:{at}" for short, at in cursors.items()).encode()


@dataclass
class Part:
    """One of the tasks. done: nothing more comes of it."""

    task_id: str
    cursor: EventId | None
    done: bool = False
    short: str = field(init=False)
    viewer: Viewer | None = None

    def __post_init__(self) -> None:
        self.short = mark(self.task_id)


class ManyStream(Stream):
    """Several tasks. The parts' own frames are rewritten: `task_id` goes into the data, the vector becomes the id."""

    def __init__(self, services: Services, who: Caller, parts: Sequence[Part], cursors: dict[str, EventId]) -> None:
        super().__init__(services, who)
        self._parts = parts
        wanted = {part.short for part in parts}
        self._cursors = {short: str(at) for short, at in cursors.items() if short in wanted}

    async def run(self) -> None:
        """All pasts one after the other, then whatever comes."""
        hub = self.services.hub
        try:
            for part in self._parts:
                if not part.done:
                    await self._begin(part)
            while not all(part.done for part in self._parts):
                if not await self._round():
                    self._quiet = True  # nothing under way: heartbeats may go straight to the wire
                    try:
                        await self.news()
                    finally:
                        self._quiet = False
        finally:
            for part in self._parts:
                if part.viewer is not None:
                    hub.leave(part.viewer)

    async def _begin(self, part: Part) -> None:
        replayer = self.services.replayer
        part.viewer = viewer = await self.watch(part.task_id)
        if viewer is None:
            part.done = True
            return
        self.services.count_replay()
        cursor, page = part.cursor, None
        if cursor is not None and viewer.topic.knows(cursor):
            viewer.move(cursor)
            return
        if cursor is not None:
            page = await self.patiently(lambda: replayer.after(part.task_id, cursor, viewer.topic.last))
        if page is None:
            again = cursor is not None
            page = await self.patiently(lambda: replayer.start(part.task_id, viewer.topic.last, again=again))
        await self._give(part, viewer, page)

    async def _give(self, part: Part, viewer: Viewer, page: Page | None) -> None:
        if page is None:  # the log is gone; this task alone has ended here
            part.done = True
            return
        for data in page.writes:
            await self.put(self._rewrite(part, data))
        viewer.move(page.at)
        part.done = page.ended

    async def _round(self) -> bool:
        """Hand on what has come. False when there was nothing."""
        out: list[bytes] = []
        for part in self._parts:
            viewer = part.viewer
            if part.done or viewer is None:
                continue
            topic = viewer.topic
            if topic.gone:
                self.end()  # the client comes back with its vector, and starts over where it must
                break
            data = topic.behind(viewer.n)
            if data is None:
                page = await self.patiently(partial(self.services.replayer.after, part.task_id, viewer.at, topic.last))
                if page is None:
                    topic.gone = True
                else:
                    await self.put_all(out)
                    await self._give(part, viewer, page)
                    return True
            elif data:
                out.append(self._rewrite(part, data))
                viewer.move(topic.newest)
            part.done = part.done or (topic.ended and viewer.n == topic.last)
        something = bool(out)
        await self.put_all(out)
        return something

    async def put_all(self, out: list[bytes]) -> None:
        """In few writes."""
        for data in sse.gather(out):
            await self.put(data)
        out.clear()

    def _rewrite(self, part: Part, frames: bytes) -> bytes:
        named = b'{"task_id":%s' % json.dumps(part.task_id).encode("ascii")
        out: list[bytes] = []
        for one in frames.split(b"\n\n"):
            if not one:
                continue
            head, _, data = one.partition(b"\ndata: ")
            event_id, _, name = head.partition(b"\n")
            self._cursors.pop(part.short, None)
            self._cursors[part.short] = event_id[4:].decode()
            comma = b"" if data == b"{}" else b","
            out.append(b"id: %s\n%s\ndata: %s%s%s\n\n" % (vector(self._cursors), name, named, comma, data[1:]))
        return b"".join(out)
