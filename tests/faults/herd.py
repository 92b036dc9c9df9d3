"""`uv run python -m tests.faults.herd --viewers 2000`: a server dies under very many viewers, and all come back to the
one that takes its place, each with its own cursor. The suite does it with 300 (test_13_ends.py).

The viewers are as light as they can be, so that they measure the server and not themselves: one connection each, and
the strict reader of tests/support/viewer.py behind it."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from dataclasses import dataclass

import psutil

from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.viewer import Viewer, Wire
from tests.support.wait import until

TOKENS, RATE = 400, 25.0
SPREAD_S = 2.0  # in which they come back; the server's own `retry:` spreads them wider
HEADERS_END = b"\r\n\r\n"


class Light(asyncio.Protocol):
    """One connection. What comes goes to `viewer`; `gone` is called when it ends."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer, self.wire, self.rest, self.begun = viewer, Wire(), b"", False
        self.gone = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        assert isinstance(transport, asyncio.Transport)
        cursor = f"Last-Event-ID: {self.viewer.last_id}\r\n" if self.viewer.last_id else ""
        path = f"/api/tasks/{self.viewer.task_id}/stream"
        transport.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{cursor}\r\n".encode())
        self.viewer.connections += 1

    def data_received(self, data: bytes) -> None:
        """Headers once, chunks then."""
        self.rest += data
        if not self.begun:
            _, end, rest = self.rest.partition(HEADERS_END)
            if not end:
                return
            self.begun, self.rest = True, rest
        while (line := self.rest.find(b"\r\n")) > 0:
            at = line + 2
            end_of_chunk = at + int(self.rest[:line], 16)
            if len(self.rest) < end_of_chunk + 2:
                return
            for event in self.wire.feed(self.rest[at:end_of_chunk]):
                self.viewer.take(event)
            self.rest = self.rest[end_of_chunk + 2 :]

    def connection_lost(self, error: Exception | None) -> None:
        """The server closed it, or died."""
        if not self.gone.done():
            self.gone.set_result(None)


async def watch(viewer: Viewer, chance: random.Random) -> None:
    """Until the end, over any number of connections."""
    port = int(viewer.url.rpartition(":")[2])
    loop = asyncio.get_running_loop()
    while viewer.end is None:
        try:
            _, light = await loop.create_connection(lambda: Light(viewer), "127.0.0.1", port)
            await light.gone
        except OSError:
            viewer.refused += 1
        if viewer.end is None:
            await asyncio.sleep(chance.uniform(0, SPREAD_S))


@dataclass
class Numbers:
    """back_s: from the new server's first answer until everybody has what was there then. rss: bytes at most of the new
    server; first: of the one that died, with as many viewers."""

    viewers: int
    back_s: float
    rss: int
    first: int


async def herd(count: int, tokens: int = TOKENS) -> Numbers:
    """tokens: of the task, at RATE a second. Raises AssertionError when anybody misses anything."""
    async with QuickStack(workers=1, streams_per_owner=count + 10) as stack:
        task_id = (await stack.api.submit(scripted(tokens=tokens, rate=RATE)))["task_id"]
        viewers = [Viewer(stack.url, task_id) for _ in range(count)]
        watching = asyncio.gather(*(watch(viewer, random.Random(n)) for n, viewer in enumerate(viewers)))
        await until(lambda: all(len(v.text) > 50 for v in viewers), "everybody to see text", every=0.1)
        first = psutil.Process(stack.servers[0].pid).memory_info().rss
        stack.servers[0].kill()
        await stack.start_server(0)
        began, there = time.monotonic(), (await stack.api.task(task_id))["length"]
        server, rss = psutil.Process(stack.servers[0].pid), 0
        while not all(len(viewer.text) >= there for viewer in viewers):
            rss = max(rss, server.memory_info().rss)
            assert time.monotonic() - began < 60, "somebody does not come back"
            await asyncio.sleep(0.02)
        back_s = time.monotonic() - began
        await watching
        rss = max(rss, server.memory_info().rss)
        for viewer in viewers:
            viewer.check()
            assert viewer.text == story(tokens=tokens)
            assert (viewer.rewinds, viewer.connections >= 2) == (0, True)
        return Numbers(count, back_s, rss, first)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.herd", description=__doc__)
    parser.add_argument("--viewers", type=int, default=2_000)
    told = asyncio.run(herd(parser.parse_args().viewers))
    print(
        f"{told.viewers} viewers were cut off; {told.back_s:.1f} s after the next server answered all had caught up\n"
        f"(they come back within {SPREAD_S:g} s). It takes {told.rss / 1e6:.0f} MB at most, "
        f"the one before {told.first / 1e6:.0f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
