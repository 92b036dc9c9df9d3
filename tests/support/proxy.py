"""A TCP proxy that misbehaves on request: between a client and a server, or (`RedisProxy`) between us and Redis.

    async with Proxy("127.0.0.1:8080") as proxy:
        proxy.segment = 1          # one byte at a time
        proxy.cut_after = 700      # every connection is reset after so many bytes of answers
        proxy.hold()               # nothing passes, nothing is closed: packets that get lost; `release` heals it
        proxy.cut()                # every connection is reset now

It lives in the test's own event loop. The RESP side, which can lose one reply of one script, is redis_proxy.py."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

BLOCK = 64 * 1024


class Link:
    """One connection through the proxy. Ends when either side ends."""

    def __init__(self, proxy: Proxy, client: Streams, server: Streams) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Until one side has ended. What came before that is delivered."""
        self._tasks = [asyncio.create_task(self._guard(self.up())), asyncio.create_task(self._guard(self.down()))]
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for _, writer in (self.client, self.server):
                writer.close()

    @property
    def busy(self) -> bool:
        """Is something asked and not answered? Only a link that understands its protocol knows."""
        return False

    async def _guard(self, pump: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(OSError, EOFError):
            await pump

    async def up(self) -> None:
        """From the client to the server."""
        while block := await self.client[0].read(BLOCK):
            await self.send(self.server[1], block)

    async def down(self) -> None:
        """From the server to the client."""
        left = self.proxy.cut_after
        while block := await self.server[0].read(BLOCK):
            if left is not None and len(block) >= left:
                await self.send(self.client[1], block[:left])
                self.cut()
                return
            left = None if left is None else left - len(block)
            await self.answer(block)

    async def answer(self, block: bytes) -> None:
        """Towards the client, late if it is to be late."""
        if self.proxy.delay_s:
            await asyncio.sleep(self.proxy.delay_s)
        self.proxy.bytes_down += len(block)
        await self.send(self.client[1], block)

    async def send(self, writer: asyncio.StreamWriter, block: bytes) -> None:
        """At the pace, and in the pieces, that the proxy asks for right now."""
        proxy = self.proxy
        size = proxy.segment or (max(1, proxy.rate // 20) if proxy.rate else len(block))
        for at in range(0, len(block), size):
            await proxy.open.wait()
            piece = block[at : at + size]
            writer.write(piece)
            await writer.drain()
            if proxy.rate:
                await asyncio.sleep(len(piece) / proxy.rate)
            elif proxy.segment:
                await asyncio.sleep(0)  # a write of its own for each piece

    def cut(self) -> None:
        """Reset both sides: what is on its way is lost."""
        for _, writer in (self.client, self.server):
            writer.transport.abort()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Listens on a loopback port of its own (or `port`). target: "host:port" or "unix:///path".

    delay_s: every block of an answer comes so much later. rate: bytes per second in each direction, 0 as fast as
    possible. segment: bytes of one write, 0 as they come. cut_after: bytes of answers after which a new connection is
    reset. refusing: new connections are reset at once. receive: the receive buffer towards the server in bytes, 0 the
    system's own: a small one makes `hold` felt on the other side at once."""

    link = Link

    def __init__(self, target: str, *, port: int = 0) -> None:
        self.target = target
        self.port = port
        self.delay_s = 0.0
        self.rate = 0
        self.segment = 0
        self.cut_after: int | None = None
        self.receive = 0
        self.refusing = False
        self.open = asyncio.Event()
        self.open.set()
        self.connections = 0
        self.bytes_down = 0
        self.cuts = 0
        self.links: set[Link] = set()
        self._server: asyncio.Server | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """As a web address."""
        return f"http://127.0.0.1:{self.port}"

    def hold(self) -> None:
        """Let nothing pass and close nothing, as a network does that loses every packet."""
        self.open.clear()

    def release(self) -> None:
        """The end of `hold`: what was held is delivered."""
        self.open.set()

    def cut(self) -> int:
        """Reset every connection; returns how many there were."""
        count = len(self.links)
        for link in list(self.links):
            link.cut()
        self.cuts += count
        return count

    async def start(self) -> Proxy:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        """Stop listening and reset what is open."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for job in list(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        job = asyncio.create_task(self._serve(reader, writer))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            server = await self._dial()
        except OSError:
            writer.transport.abort()
            return
        link = self.link(self, (reader, writer), server)
        self.links.add(link)
        try:
            await link.run()
        finally:
            self.links.discard(link)

    async def _dial(self) -> Streams:
        if self.target.startswith("unix://"):
            return await asyncio.open_unix_connection(self.target.removeprefix("unix://"))
        host, _, port = self.target.rpartition(":")
        raw = socket.socket()
        raw.setblocking(False)
        if self.receive:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive)
        await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
        return await asyncio.open_connection(sock=raw)

    async def __aenter__(self) -> Proxy:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
