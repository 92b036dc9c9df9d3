"""The workers' channel: hints that there is work, or that somebody wants a running task to stop. On a connection of
its own, whose socket timeout is above the time that it waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from unbroken.tasks import keys
from unbroken.tasks.connection import connect
from unbroken.tasks.errors import StoreUnavailable
from unbroken.worker.pump import Outage

log = logging.getLogger("unbroken.worker.hints")
WAIT_S = 5.0
SOCKET_S = 15.0
SILENT_S = 12.0  # without an answer to a ping


class Hints:
    """Listens until cancelled. Whatever is lost here, a poll or a heartbeat finds."""

    def __init__(self, url: str, name: str, about: Callable[[str], None], wake: Callable[[], None]) -> None:
        self._redis: Any = connect(url, name=f"{name}-hints", retries=0, timeout_s=SOCKET_S)
        self._about, self._wake = about, wake
        self._outage = Outage("hints")

    async def run(self) -> None:
        """Listen; subscribe again after trouble."""
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, StoreUnavailable) as error:
                await asyncio.sleep(self._outage.failed(error))
            except Exception as error:
                log.exception("hints failed in an unknown way")
                await asyncio.sleep(self._outage.failed(error))

    async def _listen(self) -> None:
        async with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(keys.prefix() + "workers")
            self._wake()  # what was said while nobody listened
            loop = asyncio.get_running_loop()
            heard = loop.time()
            while True:
                message = await pubsub.get_message(timeout=WAIT_S)
                if message is not None:
                    heard = loop.time()
                    self._outage.over()
                    if message["type"] == "message":
                        self._told(message["data"])
                elif loop.time() - heard > SILENT_S:  # a link that died without a word
                    raise RedisConnectionError("the channel is silent")
                else:
                    await pubsub.ping()

    def _told(self, data: bytes) -> None:
        verb, _, task_id = data.decode("utf-8", "replace").partition(" ")
        if verb == "wake":
            self._wake()
        elif verb in ("cancel", "pause") and keys.is_task_id(task_id):
            self._about(task_id)

    async def close(self) -> None:
        """Release the connection."""
        await self._redis.aclose()
