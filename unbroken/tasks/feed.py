"""One pub/sub connection to Redis for a whole process, reconnecting for ever.

What is pushed is only the fast path, so nothing here tries to be complete: whoever listens is told when the connection
was lost and came back, and looks at the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis
from redis.asyncio import Redis

from unbroken.tasks.connection import translated
from unbroken.tasks.errors import StoreUnavailable

log = logging.getLogger("unbroken.feed")
PING_S = 5.0  # a question on an idle connection; no answer for twice as long means that it is dead
READ_BYTES = 256 * 1024
SUBSCRIBE_S = 5.0  # waiting for a confirmation before it is told that Redis is away
BACKOFF_MAX_S = 2.0


class Feed:
    """Calls `on_message(channel, data)` for each message, `on_round()` when all that had come was handed over, and
    `on_up()` after each reconnect, when all channels are subscribed again."""

    def __init__(
        self,
        redis: Redis,
        *,
        on_message: Callable[[bytes, bytes], None],
        on_round: Callable[[], Awaitable[None]],
        on_up: Callable[[], None],
    ) -> None:
        self._pool: Any = redis.connection_pool
        self._on_message, self._on_round, self._on_up = on_message, on_round, on_up
        self._wanted: set[bytes] = set()
        self._waiting: dict[bytes, deque[asyncio.Future[None]]] = {}
        self._connection: Any = None
        self._resubscribing = 0
        self.reconnects = -1
        self.last_answer = 0.0
        """Monotonic time of the last byte from Redis."""

    async def subscribe(self, channel: bytes) -> None:
        """Returns once Redis has confirmed: from then on nothing that is published is missed, except by a lost
        connection. Raises StoreUnavailable."""
        self._wanted.add(channel)
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(channel, deque()).append(confirmed)
        if self._connection is not None:
            self._send("SUBSCRIBE", channel)
        try:
            async with asyncio.timeout(SUBSCRIBE_S):
                await confirmed
        except TimeoutError:
            raise StoreUnavailable("Redis does not confirm a subscription") from None

    def unsubscribe(self, *channels: bytes) -> None:
        """Stop listening."""
        self._wanted.difference_update(channels)
        if self._connection is not None and channels:
            self._send("UNSUBSCRIBE", *channels)

    @property
    def channels(self) -> int:
        """How many are wanted."""
        return len(self._wanted)

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            try:
                with translated():
                    await self._connect()
                    failures = 0
                    await self._read()
            except (StoreUnavailable, ConnectionError, hiredis.HiredisError) as error:
                if failures == 0:
                    log.warning("the feed lost Redis: %s", error)
            except Exception:
                log.exception("the feed stumbled")
            finally:
                await self._drop()
            failures += 1
            await asyncio.sleep(random.uniform(0, min(BACKOFF_MAX_S, 0.05 * 2**failures)))  # noqa: S311

    async def _connect(self) -> None:
        connection = self._pool.make_connection()
        try:
            await connection.connect()
            self._connection = connection
            # One confirmation each is under way from here; whoever waits longer is served by the same one.
            for channel in self._waiting:
                self._wanted.add(channel)
            wanted = sorted(self._wanted)
            self._resubscribing = len(wanted)
            for at in range(0, len(wanted), 500):
                self._send("SUBSCRIBE", *wanted[at : at + 500])
        except BaseException:
            self._connection = None
            with contextlib.suppress(Exception):
                await connection.disconnect(nowait=True)
            raise
        self.last_answer = time.monotonic()
        if not wanted:
            self._came_up()

    def _came_up(self) -> None:
        self.reconnects += 1
        if self.reconnects:
            log.info("the feed is back")
        self._on_up()

    async def _read(self) -> None:
        # The raw reader below redis-py's connection (which has done TLS, AUTH and the name): one read takes
        # everything that has come, which is what keeps thousands of messages a second cheap.
        stream: asyncio.StreamReader = self._connection._reader
        parser = hiredis.Reader()
        asked = False
        while True:
            try:
                async with asyncio.timeout(PING_S):
                    data = await stream.read(READ_BYTES)
            except TimeoutError:
                if asked:
                    raise StoreUnavailable("Redis went silent") from None
                asked = True
                self._send("PING")
                continue
            if not data:
                raise StoreUnavailable("Redis closed the connection")
            asked = False
            self.last_answer = time.monotonic()
            parser.feed(data)
            while (reply := parser.gets()) is not False:
                self._take(reply)
            await self._on_round()

    def _take(self, reply: Any) -> None:
        if isinstance(reply, Exception):
            raise StoreUnavailable(f"Redis refuses: {reply}")
        kind = reply[0] if isinstance(reply, list) else reply
        if kind == b"message":
            self._on_message(reply[1], reply[2])
        elif kind == b"subscribe":
            waiting = self._waiting.get(reply[1])
            if self._resubscribing:
                self._resubscribing -= 1
                while waiting:
                    _finish(waiting.popleft())
                if self._resubscribing == 0:
                    self._came_up()
            elif waiting:
                _finish(waiting.popleft())
            if waiting is not None and not waiting:
                del self._waiting[reply[1]]

    def _send(self, *words: str | bytes) -> None:
        # Straight to the writer: a caller that is cancelled must not take the shared connection with it. A broken
        # connection is noticed by the reader, and everything wanted is asked for again.
        connection = self._connection
        writer: asyncio.StreamWriter | None = connection._writer if connection is not None else None
        if writer is not None:
            writer.write(b"".join(connection.pack_command(*words)))

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.disconnect(nowait=True)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
