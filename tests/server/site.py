"""A real server in a thread of its own, and viewers that check the wire while they read."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import socket
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from tests.support.wait import until_sync
from unbroken.server.app import create_app
from unbroken.server.context import Services
from unbroken.server.main import config
from unbroken.tasks.settings import Settings


@dataclass
class Site:
    """Where it is, and what is inside."""

    url: str
    port: int
    server: uvicorn.Server
    app: Any

    @property
    def services(self) -> Services:
        """The running application's; only to look at."""
        found: Services = self.app.state.services
        return found


@contextmanager
def running(settings: Settings) -> Iterator[Site]:
    """Serve on a free port until the block ends."""
    app = create_app(settings)
    server = uvicorn.Server(config(settings, app))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            until_sync(lambda: server.started or not thread.is_alive(), "the server to start")
            assert server.started, "the server did not start"
            yield Site(f"http://127.0.0.1:{port}", port, server, app)
        finally:
            if server.started:
                app.state.stop()
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), f"the server does not stop:\n{_what_runs(thread)}"


def _what_runs(thread: threading.Thread) -> str:
    """Where a server that does not stop is, and what it waits for."""
    out = io.StringIO()
    traceback.print_stack(sys._current_frames()[thread.ident or 0], file=out)
    for task in [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]:
        task.print_stack(file=out)
    return out.getvalue()


@dataclass(frozen=True)
class Frame:
    """One event as received."""

    id: str
    name: str
    data: dict[str, Any]
    raw: bytes

    @property
    def n(self) -> int:
        """Its number."""
        return int(self.id.partition("-")[2])


def parse(raw: bytes) -> list[Frame]:
    """Split what came into events, and insist on the wire rules (DESIGN section 5)."""
    assert b"\r" not in raw
    found = []
    for block in raw.split(b"\n\n")[:-1]:
        lines = [line for line in block.split(b"\n") if line != b":" and not line.startswith(b"retry: ")]
        assert [line.split(b": ", 1)[0] for line in lines] == [b"id", b"event", b"data"], block
        values = [line.split(b": ", 1)[1] for line in lines]
        values[2].decode("ascii")
        found.append(Frame(values[0].decode(), values[1].decode(), json.loads(values[2]), block + b"\n\n"))
    ids = [tuple(map(int, frame.id.split("-"))) for frame in found]
    assert ids == sorted(set(ids)), "ids rise strictly"
    return found


@dataclass
class View:
    """The fold of section 5."""

    text: str = ""
    items: dict[int, Any] = field(default_factory=dict)
    end: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    last: str = ""
    rewinds: int = 0

    def take(self, frame: Frame) -> None:
        """One event."""
        assert self.end in ("", "failed"), f"{frame} after the end"
        if frame.name == "chunk":
            assert frame.data["offset"] <= len(self.text), "a chunk beyond the end: something was missed"
            self.rewinds += frame.data["offset"] < len(self.text)
            self.text = self.text[: frame.data["offset"]] + frame.data["text"]
        elif frame.name == "item":
            self.items[frame.data["index"]] = frame.data
        elif frame.name in ("done", "failed", "cancelled"):
            self.end, self.data = frame.name, frame.data
        self.last = frame.id

    def take_all(self, raw: bytes) -> View:
        """All complete events."""
        for frame in parse(raw):
            self.take(frame)
        return self


class Reading:
    """A stream being read."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.raw = b""
        self._parts = response.aiter_raw()

    async def more(self, within: float = 60) -> bool:
        """Read what comes next; False at the end."""
        async with asyncio.timeout(within):
            try:
                self.raw += await anext(self._parts)
            except StopAsyncIteration:
                return False
        return True

    async def until(self, needle: bytes, within: float = 60) -> bytes:
        """Read until `needle` was there; all that was read."""
        async with asyncio.timeout(within):
            while needle not in self.raw:
                assert await self.more(), f"the stream ended before {needle!r}: {self.raw[-500:]!r}"
        return self.raw

    async def rest(self, within: float = 60) -> bytes:
        """Read to the end; all that was read."""
        async with asyncio.timeout(within):
            while await self.more():
                pass
        return self.raw


@asynccontextmanager
async def watching(client: httpx.AsyncClient, task_id: str, cursor: str | None = None) -> AsyncIterator[Reading]:
    """Open the stream of a task."""
    headers = {} if cursor is None else {"Last-Event-ID": cursor}
    async with client.stream("GET", f"/api/tasks/{task_id}/stream", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield Reading(response)


async def whole(client: httpx.AsyncClient, task_id: str, cursor: str | None = None) -> bytes:
    """The stream of a task from a cursor to its end; b"" for 204."""
    headers = {} if cursor is None else {"Last-Event-ID": cursor}
    response = await client.get(f"/api/tasks/{task_id}/stream", headers=headers)
    assert response.status_code in (200, 204), response.text
    return response.content
