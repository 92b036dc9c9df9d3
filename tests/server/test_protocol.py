"""The edge of HTTP, on bare sockets: heads without an end, clients of HTTP/1.0, half-closed connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.server.author import begin
from tests.server.site import Site, View, parse
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.server import protocol

TIMEOUT_S = 20


class Bare:
    """A connection without a client library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """All of it, as far as it is taken."""
        self.writer.write(data)
        async with asyncio.timeout(TIMEOUT_S):
            await self.writer.drain()

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        got = b""
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(ConnectionResetError):
                while part := await self.reader.read(65_536):
                    got += part
        return got

    async def until(self, needle: bytes) -> bytes:
        """Everything until `needle`."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.reader.readuntil(needle)


@asynccontextmanager
async def bare(site: Site) -> AsyncIterator[Bare]:
    """Connect."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    try:
        yield Bare(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


ENDLESS = {
    "headers": (b"GET /healthz HTTP/1.1\r\n", b"x-%d: " + b"a" * 4_000 + b"\r\n"),
    "one header": (b"GET /healthz HTTP/1.1\r\nx: ", b"a" * 4_000),
    "one name": (b"GET /healthz HTTP/1.1\r\n", b"a" * 4_000),
    "the address": (b"GET /", b"a" * 4_000),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_a_head_without_an_end_is_refused(site: Site, what: str) -> None:
    first, more = ENDLESS[what]
    async with bare(site) as client:
        await client.send(first)
        sent = 0
        with suppress(ConnectionError):
            while sent < 64 * 1024 * 1024 and not client.reader.at_eof():
                await client.send(more)
                sent += len(more)
                await asyncio.sleep(0)
        assert sent < 16 * 1024 * 1024, "what fits into the kernel's buffers and no more"
    await until(lambda: not site.server.server_state.connections, "nothing to be kept of it")


async def test_the_refusal_is_a_problem_document(site: Site) -> None:
    async with bare(site) as client:
        await client.send(b"GET /healthz HTTP/1.1\r\nx: " + b"a" * (protocol.HEAD_MAX + 1) + b"\r\n\r\n")
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 431


async def test_what_is_large_and_allowed_gets_through(site: Site, desk: Desk) -> None:
    """A head just below the limit, in pieces, with a body right behind it and the next request behind that."""
    body = json.dumps({"input": {"prompt": "x" * 900_000}}).encode()
    head = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx: "
    first = head % len(body) + b"a" * (protocol.HEAD_MAX - 1_000) + b"\r\n\r\n" + body
    second = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: " + b"b" * 100_000 + b"\r\n\r\n"
    raw = first + second
    async with bare(site) as client:
        for at in range(0, len(raw), 50_000):
            await client.send(raw[at : at + 50_000])
        got = await client.rest()
    assert [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]] == [201, 200]


async def test_a_head_that_does_not_come_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.3)
    async with bare(site) as silent, bare(site) as slow, bare(site) as second:
        await slow.send(b"GET /healthz HTTP/1.1\r\nx: ")
        await second.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await second.until(b'"ok"}')
        await second.send(b"GET /hea")
        assert await silent.rest() == b""
        assert (await slow.rest()).startswith(b"HTTP/1.1 408 ")
        assert (await second.rest()).startswith(b"HTTP/1.1 408 ")


async def test_a_stream_has_all_the_time(site: Site, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the next request is begun behind it and left so."""
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    author = await begin(desk)
    async with bare(site) as client:
        await client.send(b"GET /api/tasks/%b/stream HTTP/1.1\r\nhost: localhost\r\n\r\n" % author.task.id.encode())
        await client.until(b"processing")
        await client.send(b"GET /hea")
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - began > 0.6, "several limits of a head to pass")
        await author.write("still here")
        await client.until(b"still here")


async def test_a_client_of_http_1_0_gets_no_chunks(site: Site, desk: Desk) -> None:
    author = await begin(desk)
    async with bare(site) as client:
        await client.send(b"GET /api/tasks/%b/stream HTTP/1.0\r\nhost: localhost\r\n\r\n" % author.task.id.encode())
        head = (await client.until(b"\r\n\r\n")).lower()
        assert b"transfer-encoding" not in head
        assert b"content-length" not in head
        assert [line for line in head.split(b"\r\n") if line.startswith(b"connection:")] == [b"connection: close"]
        await author.write("no chunks ")
        await client.until(b"no chunks")
        await author.write("at all")
        await author.complete()
        await client.rest()
    async with bare(site) as client:
        await client.send(b"GET /api/tasks/%b/stream HTTP/1.0\r\nhost: localhost\r\n\r\n" % author.task.id.encode())
        _, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert View().take_all(body).text == "no chunks at all"
        assert parse(body)[-1].name == "done"
    for path, status in ((b"/healthz", b"200"), (b"/static/stream.js", b"200"), (b"/nope", b"404")):
        async with bare(site) as client:
            await client.send(b"GET %b HTTP/1.0\r\nhost: localhost\r\n\r\n" % path)
            head, _, body = (await client.rest()).partition(b"\r\n\r\n")
            assert head.split(b" ")[1] == status
            assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"


async def test_close_is_said_once(site: Site, desk: Desk) -> None:
    author = await begin(desk)
    async with bare(site) as client:
        path = b"/api/tasks/%b/stream" % author.task.id.encode()
        await client.send(b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" % path)
        head = (await client.until(b"\r\n\r\n")).lower()
    assert [line for line in head.split(b"\r\n") if line.startswith(b"connection:")] == [b"connection: close"]


async def test_who_has_asked_and_only_listens_gets_the_answer(site: Site, desk: Desk) -> None:
    body = b'{"input":{"prompt":"x"}}'
    asked = {
        b"GET /api/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n": b"200",
        b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body): b"201",
    }
    for request, status in asked.items():
        async with bare(site) as client:
            await client.send(request)
            client.writer.write_eof()
            head, _, answer = (await client.rest()).partition(b"\r\n\r\n")
            assert head.split(b" ")[1] == status
            assert b"content-length: %d\r\n" % len(answer) in head + b"\r\n"


async def test_who_leaves_in_the_middle_of_a_request_is_gone(site: Site, desk: Desk) -> None:
    for sent in (
        b"",
        b"GET /hea",
        b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
    ):
        async with bare(site) as client:
            await client.send(sent)
            client.writer.write_eof()
            await client.rest()
    await until(lambda: not site.server.server_state.connections, "no connection to be left")
    await until(lambda: not site.server.server_state.tasks, "nobody to wait for the rest of a body")
