"""How commands leave this process, where redis-py's own way costs us too much.

Commands are put together in C, as its blocking connections do: a third of the cost of an append is there. And they are
sent without a task of its own for each, which is what its asyncio.wait_for makes. Up to Python 3.11 that one also
forgets a cancel that comes in the moment in which its work is done, so that what calls Redis again and again (the
loops of a server, the parts of a worker) could not be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError
from redis.exceptions import TimeoutError as RedisTimeoutError


class Packed:
    """In front of an asyncio connection class of redis-py."""

    is_connected: bool
    socket_timeout: float | None
    _writer: asyncio.StreamWriter

    @staticmethod
    def pack_command(*args: Any) -> list[bytes]:
        """A command as bytes. Its name may hold several words. Raises DataError for what cannot be sent."""
        name = args[0].encode() if isinstance(args[0], str) else args[0]
        words = (*name.split(), *args[1:]) if b" " in name else args
        try:
            return [hiredis.pack_command(words)]
        except TypeError as error:
            raise DataError(str(error)) from error

    def pack_commands(self, commands: Iterable[Sequence[Any]]) -> list[bytes]:
        """Several, as one piece."""
        return [b"".join([self.pack_command(*command)[0] for command in commands])]

    async def send_packed_command(self, command: Iterable[bytes], check_health: bool = True) -> None:
        """Send what `pack_command` made. Raises ConnectionError and TimeoutError of redis-py."""
        me: Any = self
        if not self.is_connected:
            await me.connect_check_health(check_health=False)
        if check_health:
            await me.check_health()
        try:
            async with asyncio.timeout(self.socket_timeout):
                self._writer.writelines(command)
                await self._writer.drain()
        except TimeoutError:
            await me.disconnect(nowait=True)
            raise RedisTimeoutError("Timeout writing to socket") from None
        except OSError as error:
            await me.disconnect(nowait=True)
            raise RedisConnectionError(f"Error while writing to socket: {error}") from error
        except BaseException:  # half a command may be on its way: nothing can follow it
            await me.disconnect(nowait=True)
            raise


@cache
def packed(kind: type) -> type:
    """That connection class with `Packed` in front of it."""
    return type(f"Packed{kind.__name__}", (Packed, kind), {})
