"""Questions to running parts: does it work?"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from unbroken.cli.embedded import Embedded

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


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


async def model_says(url: str, key: str | None = None) -> str | None:
    """Why the model behind this address cannot be used, or None when it answers."""
    import httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with httpx.AsyncClient(timeout=5, trust_env=urlsplit(url).hostname not in LOOPBACK) as client:
            status = (await client.get(url, headers=headers)).status_code
    except httpx.HTTPError as error:
        return f"it cannot be reached ({error or type(error).__name__})"
    except httpx.InvalidURL as error:
        return f"this is no address ({error})"
    if status in (401, 403):
        return f"it does not accept the key (status {status}); see UNBROKEN_API_KEY"
    # servers with one model often have no list of models: any other answer of theirs is an answer
    return f"it answers with status {status}" if status >= 500 else None
