"""Writing to a connection's transport without going through ASGI.

This touches what uvicorn keeps to itself, so it is optional: where anything looks different from what is expected, the
answer is None, and everything goes through ASGI's `send`, which is right as well, only slower."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Message, Scope, Send

SEND = "unbroken.send"  # where the application keeps the server's own `send`, before anything wrapped it
FULL = 64 * 1024  # bytes waiting in the transport above which a client counts as slow


def until_close(send: Send) -> Send:
    """`send` for a client of HTTP/1.0, which knows no chunks (RFC 9112, 6.1): an answer without a length ends with the
    connection. Such a client's connection is closed after each answer anyway."""
    cycle: Any = getattr(send, "__self__", None)
    if not hasattr(cycle, "chunked_encoding") or not hasattr(cycle, "expected_content_length"):
        return send
    endless = False

    async def plain(message: Message) -> None:
        nonlocal endless
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            endless = not names & {b"content-length", b"transfer-encoding"}
            if endless:
                cycle.chunked_encoding = False
        elif endless:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return plain


class Wire:
    """One connection whose response is under way in chunked encoding."""

    __slots__ = ("_cycle", "_transport", "news")

    def __init__(self, cycle: Any) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self.news: asyncio.Event = cycle.message_event
        """Set by uvicorn when the client leaves. Whoever waits for other things too sets the same event: so nobody
        has to wait in `receive` beside."""

    @property
    def left(self) -> bool:
        """Is the client gone?"""
        return bool(self._cycle.disconnected)

    def write(self, data: bytes) -> bool:
        """Write one chunk. False when the client is slow or gone; nothing was written then."""
        transport = self._transport
        try:
            if transport.is_closing() or transport.get_write_buffer_size() > FULL:
                return False
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        except Exception:  # a broken transport is this viewer's trouble alone
            return False
        return True

    def abort(self) -> None:
        """Drop the connection and what still waits in it."""
        try:
            self._transport.abort()
        except Exception:  # it is gone already
            return


def direct(scope: Scope) -> Wire | None:
    """The connection behind an ASGI scope, if it is uvicorn's and in the state we know."""
    cycle = getattr(scope.get(SEND), "__self__", None)
    transport = getattr(cycle, "transport", None)
    if transport is None or getattr(cycle, "chunked_encoding", None) is not True:
        return None
    if getattr(cycle, "response_complete", True) or not getattr(cycle, "response_started", False):
        return None
    if not isinstance(getattr(cycle, "message_event", None), asyncio.Event) or not hasattr(cycle, "disconnected"):
        return None
    needed = ("is_closing", "get_write_buffer_size", "write", "abort")
    return Wire(cycle) if all(hasattr(transport, name) for name in needed) else None
