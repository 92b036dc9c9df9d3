"""Connections to Redis, and the one way to call a script.

Every script is safe to send twice (G14), so a call whose reply was lost is simply sent again. What cannot be answered
in time becomes StoreUnavailable; nothing above this module sees an error of redis-py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import redis
from redis.asyncio import BlockingConnectionPool, Redis, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MaxConnectionsError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)
from redis.retry import Retry as SyncRetry

from unbroken.tasks import keys
from unbroken.tasks.errors import StoreRefuses, StoreUnavailable
from unbroken.tasks.moved import following, place_of
from unbroken.tasks.packed import packed
from unbroken.tasks.scripts import Script, script

Arg = str | int | float | bytes
SOCKET_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 3.0
CONNECTIONS_MAX = 64  # of one client
POOL_WAIT_S = 10.0  # for a free connection before it counts as an outage
# A short outage (a restart, a failover) is waited out inside one call; a longer one is told to the caller.
_BACKOFF = ExponentialWithJitterBackoff(base=0.02, cap=0.5)
_PASSING = (RedisConnectionError, RedisTimeoutError, ReadOnlyError, BusyLoadingError)
_TEMPORARY_CODES = (
    "NOREPLICAS",
    "MISCONF",
    "LOADING",
    "READONLY",
    "BUSY",
)


FIRST_ANSWER_S = 15.0  # to a call whose caller has nothing to do before Redis has answered it


class Local(UnixDomainSocketConnection):
    """A connection to a unix socket. redis-py's own introduces itself while it connects, and every word of that may
    connect again: where a password is missing, each level with all its tries, which no time limit ends."""

    async def _connect(self) -> None:
        async with asyncio.timeout(self.socket_connect_timeout):
            self._reader, self._writer = await asyncio.open_unix_connection(path=self.path)


def connect(url: str, *, name: str, retries: int = 4, timeout_s: float = SOCKET_TIMEOUT_S) -> Redis:
    """An asyncio client that speaks bytes. `name` shows in CLIENT LIST. Above CONNECTIONS_MAX calls at once the next
    ones wait for a free connection: a crowd is slower, and never an error."""
    keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True}
    pool: Any = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS_MAX,
        timeout=POOL_WAIT_S,
        protocol=2,
        decode_responses=False,
        client_name=name,
        socket_timeout=timeout_s,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        **keepalive,
        health_check_interval=30,
        retry=Retry(_BACKOFF, retries),
        retry_on_error=[ReadOnlyError, BusyLoadingError],
    )
    kind = packed(Local if url.startswith("unix:") else pool.connection_class)
    if not url.startswith("unix:"):
        kind = following(kind)
        pool.connection_kwargs["place"] = place_of(url)
    pool.connection_class = kind
    return Redis.from_pool(pool)


def connect_sync(url: str, *, name: str, timeout_s: float) -> redis.Redis:
    """A blocking client with one try a call, for a thread of its own."""
    client = redis.Redis.from_url(
        url,
        protocol=2,
        decode_responses=False,
        client_name=name,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=SyncRetry(_BACKOFF, 0),
    )
    if not url.startswith("unix:"):
        pool = client.connection_pool
        pool.connection_class = following(pool.connection_class, blocking=True)
        pool.connection_kwargs["place"] = place_of(url)
    return client


@contextmanager
def translated() -> Iterator[None]:
    """Map redis-py's errors to ours, in one place."""
    try:
        yield
    except OutOfMemoryError as error:
        raise StoreUnavailable("Redis is full (maxmemory)", full=True) from error
    except AuthenticationError as error:  # not NOPERM: that is one command that a managed service keeps for itself
        wants = "wants a password" if "required" in str(error) else "lets nobody in with this password"
        raise StoreRefuses(f"Redis {wants} ({_words(error)})") from error
    except (*_PASSING, MaxConnectionsError, OSError) as error:
        raise StoreUnavailable(f"Redis does not answer ({type(error).__name__})") from error
    except (ClusterDownError, MasterDownError, TryAgainError, AskError) as error:  # redis-py cuts their codes off
        raise StoreUnavailable(f"the cluster cannot serve now ({type(error).__name__})") from error
    except ResponseError as error:
        text = str(error)
        if "DB index" in text:
            raise StoreRefuses(f"Redis has no database of this number ({_words(error)})") from error
        if "OOM" in text[:60]:
            raise StoreUnavailable("Redis is full (maxmemory)", full=True) from error
        if text.startswith(_TEMPORARY_CODES):
            raise StoreUnavailable(f"Redis cannot serve now ({text.split(' ', 1)[0]})") from error
        raise


@asynccontextmanager
async def first_answer() -> AsyncIterator[None]:
    """A limit around the first calls on a connection: whatever redis-py does meanwhile, somebody waits for a word.
    Raises StoreUnavailable."""
    try:
        async with asyncio.timeout(FIRST_ANSWER_S):
            yield
    except TimeoutError:
        raise StoreUnavailable(f"Redis does not answer within {FIRST_ANSWER_S:.0f} s") from None


def _words(error: Exception) -> str:
    text = str(error).strip().rstrip(".")
    return text[:1].lower() + text[1:200] if not text[:2].isupper() else text[:200]


class Calls:
    """Calls scripts of one shard over one client."""

    def __init__(self, redis: Redis, *, shard: int = 0, audit_max: int = 100_000, clock: str | None = None):
        self.redis: Any = redis  # redis-py's unions of bytes and str say less than nothing here
        self.prefix = keys.prefix(shard)
        self._build = {"audit_max": audit_max, "clock": clock}

    def script(self, name: str) -> Script:
        """The script as this process builds it."""
        return script(name, **self._build)

    async def call(self, name: str, first_key: str, *args: Arg) -> Any:
        """Run one script. Raises StoreUnavailable."""
        ready = self.script(name)
        with translated():
            try:
                return await self.redis.evalsha(ready.sha, 1, first_key, self.prefix, *args)
            except NoScriptError:  # a restart, a failover, SCRIPT FLUSH
                return await self.redis.eval(ready.source, 1, first_key, self.prefix, *args)

    async def call_many(self, calls: Sequence[tuple[str, str | Sequence[str], Sequence[Arg]]]) -> list[Any]:
        """Run several (script, key or keys, arguments) in one round trip. The answer of each is its reply, or a
        StoreUnavailable or ResponseError in its place. Raises StoreUnavailable when nothing was answered."""
        with translated():
            replies = await self._pipeline(calls)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:
                for name in {calls[i][0] for i in missing}:
                    await self.redis.script_load(self.script(name).source)
                for i, reply in zip(missing, await self._pipeline([calls[i] for i in missing]), strict=True):
                    replies[i] = reply
        return [_translate(reply) for reply in replies]

    async def _pipeline(self, calls: Sequence[tuple[str, str | Sequence[str], Sequence[Arg]]]) -> list[Any]:
        async with self.redis.pipeline(transaction=False) as pipe:
            for name, where, args in calls:
                names = (where,) if isinstance(where, str) else where
                pipe.evalsha(self.script(name).sha, len(names), *names, self.prefix, *args)
            return list(await pipe.execute(raise_on_error=False))


class Gathered(Calls):
    """Calls that are made in the same moment by different tasks of the event loop share a round trip."""

    def __init__(self, redis: Redis, *, audit_max: int = 100_000):
        super().__init__(redis, audit_max=audit_max)
        self._waiting: list[tuple[tuple[str, str, Sequence[Arg]], asyncio.Future[Any]]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def call(self, name: str, first_key: str, *args: Arg) -> Any:
        """As above. A caller that is cancelled does not take the others with it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(((name, first_key, args), answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._go)
        return await answer

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        sending = asyncio.create_task(self._send(waiting))
        self._under_way.add(sending)
        sending.add_done_callback(self._under_way.discard)

    async def _send(self, waiting: list[tuple[tuple[str, str, Sequence[Arg]], asyncio.Future[Any]]]) -> None:
        replies: list[Any]
        try:
            if len(waiting) == 1:
                name, first_key, args = waiting[0][0]
                replies = [await super().call(name, first_key, *args)]
            else:
                replies = await self.call_many([call for call, _ in waiting])
        except Exception as error:
            replies = [error] * len(waiting)
            if len(waiting) > 1 and not isinstance(error, StoreUnavailable):  # one of them cannot be sent: which?
                alone = super().call
                calls = [alone(name, first_key, *args) for (name, first_key, args), _ in waiting]
                replies = await asyncio.gather(*calls, return_exceptions=True)
        for (_, answer), reply in zip(waiting, replies, strict=True):
            if answer.done():
                continue
            if isinstance(reply, Exception):
                answer.set_exception(reply)
            else:
                answer.set_result(reply)


def _translate(reply: Any) -> Any:
    if isinstance(reply, RedisError):
        try:
            with translated():
                raise reply
        except StoreUnavailable as error:
            return error
        except RedisError as error:
            return error
    return reply
