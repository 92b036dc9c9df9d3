"""Questions to running parts: does it work?"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from unbroken.cli.embedded import Embedded


async def valkey_answers(database: Embedded) -> bool:
    """PING with the password; false while it still loads its file."""
    reader, writer = await asyncio.open_unix_connection(str(database.socket))
    try:
        writer.write(f"AUTH {database.password}\r\nPING\r\n".encode())
        await writer.drain()
        return await reader.readline() == b"+OK\r\n" and await reader.readline() == b"+PONG\r\n"
    finally:
        writer.close()


async def http_ok(url: str) -> bool:
    """GET answers 200. Plain, so that no HTTP library takes part in a start."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        await writer.drain()
        words = (await reader.readline()).split()
        return len(words) > 1 and words[1] == b"200"
    finally:
        writer.close()


async def started() -> bool:
    """For parts that have nobody to ask: being alive is all."""
    return True
