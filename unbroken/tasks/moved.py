"""Redis as a cluster: all keys of a shard share one slot, so one node at a time holds everything, and an ordinary
client will do that goes where the slot is.

The node that is asked and does not hold the slot answers MOVED with the address of the one that does. The connection
then counts as broken, which whoever called repeats anyway, and every next one of this process goes to that address.
Where nobody listens, the other known addresses get their turn, the one of the URL first.

Not handled on purpose: ASK, which is answered while a slot is carried over key by key. Scripts make the names of most
keys themselves, so half of a task would be looked for on the wrong node; see README, "Limits"."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError

log = logging.getLogger("unbroken.tasks")
KNOWN_MAX = 16  # addresses that are remembered

Address = tuple[str, int]


class Place:
    """Where the slot is, as far as this process knows. Shared by all its clients of one URL, also between threads:
    every step is one assignment, and a wrong guess costs one more redirection."""

    def __init__(self) -> None:
        self.known: tuple[Address, ...] = ()
        """The URL's own address first."""
        self.now: Address | None = None

    def begin(self, address: Address) -> Address:
        """Where to connect; `address` is the URL's."""
        if address not in self.known:
            self.known = (address, *self.known)
        if self.now is None:
            self.now = address
        return self.now

    def moved(self, address: Address) -> None:
        """A node says that the slot is there."""
        if address != self.now:
            log.info("the cluster keeps our slot at %s:%d", *address)
        if address not in self.known:
            self.known = (*self.known, address)[-KNOWN_MAX:]
        self.now = address

    def unreachable(self, address: Address) -> None:
        """Nobody listens there: the next one is tried."""
        if address == self.now and address in self.known:
            self.now = self.known[(self.known.index(address) + 1) % len(self.known)]


@cache
def place_of(url: str) -> Place:
    """The one place of this process for a URL."""
    return Place()


class _Follows:
    """What connections of both sorts share."""

    host: str
    port: int

    def __init__(self, *, place: Place, **given: Any) -> None:
        super().__init__(**given)
        self._place, self._given = place, (self.host, self.port)

    def _go(self) -> Address:
        self.host, self.port = self._place.begin(self._given)
        return self.host, self.port

    def _redirected(self, moved: MovedError) -> RedisConnectionError:
        # an empty host: the one that was asked, at another port
        self._place.moved((moved.host or self.host, moved.port))
        return RedisConnectionError(f"the slot is at {moved.node_addr}")


class Follows(_Follows):
    """In front of an asyncio connection class of redis-py."""

    async def _connect(self) -> None:
        address = self._go()
        try:
            await super()._connect()  # type: ignore[misc]
        except (OSError, TimeoutError):
            self._place.unreachable(address)
            raise

    async def read_response(self, *args: Any, **given: Any) -> Any:
        """As below it, but a redirection is followed."""
        try:
            return await super().read_response(*args, **given)  # type: ignore[misc]
        except MovedError as moved:
            await self.disconnect(nowait=True)  # type: ignore[attr-defined]
            raise self._redirected(moved) from moved


class FollowsSync(_Follows):
    """In front of a blocking connection class of redis-py."""

    def _connect(self) -> Any:
        address = self._go()
        try:
            return super()._connect()  # type: ignore[misc]
        except (OSError, TimeoutError):
            self._place.unreachable(address)
            raise

    def read_response(self, *args: Any, **given: Any) -> Any:
        """As below it, but a redirection is followed."""
        try:
            return super().read_response(*args, **given)  # type: ignore[misc]
        except MovedError as moved:
            self.disconnect()  # type: ignore[attr-defined]
            raise self._redirected(moved) from moved


@cache
def following(kind: type, *, blocking: bool = False) -> type:
    """That connection class, and it goes where the slot is. It takes `place` beside its own arguments."""
    front = FollowsSync if blocking else Follows
    return type(f"Following{kind.__name__}", (front, kind), {})
