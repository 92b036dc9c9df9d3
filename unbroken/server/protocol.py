"""What uvicorn leaves open at the edge of HTTP: how large a request's head may be and how long it may take, and clients
that close their half of the connection once they have asked.

The body has its limit in body.py; nginx has limits of its own in front of all of this, but not everybody runs it."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from unbroken.server.problems import Problem

HEAD_MAX = 128 * 1024  # bytes of the address and the headers; a stream of 1,000 tasks names them all there, twice
HEAD_S = 30.0  # from the connection, or its first byte, to the last one of the head


class HeadTooLarge(Exception):
    """More than HEAD_MAX."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    # uvicorn's own attributes are as many as share their names among all instances; beside them each costs a kilobyte
    __slots__ = ("_heads", "_in_head", "_late", "_named", "_raw")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._heads = 0
        """Requests that began on this connection."""
        self._in_head = False
        self._named = 0
        """Bytes of the head that the parser has told us of."""
        self._raw = 0
        """Bytes that came while it is not complete: a single header without an end is told to nobody."""
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio."""
        self._head_is_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """asyncio."""
        before = self._heads if self._in_head else 0
        super().data_received(data)
        if self._in_head and self._heads == before:
            self._raw += len(data)
            if self._raw > HEAD_MAX:
                self._refuse(431)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """asyncio. Who has asked and only waits for the answer gets it; a stream's viewer is taken to have left."""
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_started or self.pipeline or self._in_head:
            return None
        if cycle.scope["path"].endswith("/stream"):
            return None
        cycle.keep_alive = False
        return True

    # the parser's callbacks

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self._heads += 1
        self._in_head, self._named, self._raw = True, 0, 0
        self._wait_for_head()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One whole header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        self._head_is_there()
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._named += size
        if self._in_head and self._named > HEAD_MAX:
            raise HeadTooLarge

    # refusals

    def send_400_response(self, msg: str) -> None:
        """What the parser did not take: it is not HTTP, or we stopped it."""
        if self._named > HEAD_MAX:
            self._refuse(431)
        else:
            super().send_400_response(msg)

    def _wait_for_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_S, self._too_late)

    def _head_is_there(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if self._answering:
            self._wait_for_head()  # we do not read on meanwhile ourselves
        elif self._in_head:
            self._refuse(408)
        else:
            self.transport.close()

    @property
    def _answering(self) -> bool:
        """Is the answer to an earlier request under way?"""
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: int) -> None:
        """The connection ends; with an answer, unless it would stand in the middle of another one."""
        if self.transport.is_closing():
            return
        if not self._answering:
            says = {408: "The request did not come in time.", 431: f"The headers are larger than {HEAD_MAX} bytes."}
            answer = Problem(status, says[status]).response()
            headers = [*self.server_state.default_headers, *answer.raw_headers, (b"connection", b"close")]
            lines = b"".join(b"%b: %b\r\n" % header for header in headers)
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], lines, bytes(answer.body)))
        self.transport.close()
