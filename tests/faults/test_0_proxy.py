"""The tools first: a proxy that broke more, or less, than it says would make every test here worthless."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.support.desk import Desk
from tests.support.proxy import Proxy
from tests.support.redis_proxy import RedisProxy, end_of, words_of
from unbroken.tasks.settings import Settings


@asynccontextmanager
async def echo() -> AsyncIterator[str]:
    """A server that says back what it hears; yields its host:port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while block := await reader.read(1024):
                writer.write(block)
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def client_of(proxy: Proxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_it_passes_bytes_in_pieces_and_slowly() -> None:
    async with echo() as target, Proxy(target) as proxy, client_of(proxy) as (reader, writer):
        proxy.segment = 1
        writer.write(b"0123456789")
        assert await asyncio.wait_for(reader.readexactly(10), 5) == b"0123456789"
        proxy.segment, proxy.rate = 0, 2_000
        began = asyncio.get_running_loop().time()
        writer.write(b"x" * 1_000)
        assert len(await asyncio.wait_for(reader.readexactly(1_000), 20)) == 1_000
        assert asyncio.get_running_loop().time() - began > 0.3


async def broken(reader: asyncio.StreamReader, count: int) -> bytes:
    """What still came of `count` bytes before the connection broke."""
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)) as cut:
        await asyncio.wait_for(reader.readexactly(count), 5)
    return cut.value.partial if isinstance(cut.value, asyncio.IncompleteReadError) else b""


async def test_it_cuts_exactly_there_and_then() -> None:
    async with echo() as target, Proxy(target) as proxy:
        proxy.cut_after = 7
        async with client_of(proxy) as (reader, writer):
            writer.write(b"0123456789")
            assert len(await broken(reader, 10)) <= 7
        proxy.cut_after = None
        async with client_of(proxy) as (reader, writer):
            writer.write(b"a")
            assert await reader.readexactly(1) == b"a"
            assert proxy.cut() >= 1
            assert await broken(reader, 1) == b""
        proxy.refusing = True
        async with client_of(proxy) as (reader, _):
            assert await broken(reader, 1) == b""


async def test_what_is_held_comes_after_the_release() -> None:
    async with echo() as target, Proxy(target) as proxy, client_of(proxy) as (reader, writer):
        proxy.hold()
        writer.write(b"late")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(4), 0.2)
        proxy.release()
        # the read that timed out took nothing, so all four bytes are there
        assert await asyncio.wait_for(reader.readexactly(4), 5) == b"late"


def test_a_value_is_whole_or_it_is_not() -> None:
    for raw in (b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"$3\r\nabc\r\n", b"*-1\r\n", b"*2\r\n*1\r\n$1\r\na\r\n:1\r\n"):
        assert end_of(raw) == len(raw)
        assert end_of(raw + b"+more\r\n") == len(raw)
        assert all(end_of(raw[:cut]) == -1 for cut in range(len(raw)))
    assert words_of(b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n") == [b"GET", b"\r\n"]


@pytest.mark.parametrize("silent", [False, True])
async def test_a_lost_reply_is_of_a_command_that_was_executed(redis: Redis, valkey_url: str, silent: bool) -> None:
    async with RedisProxy(valkey_url) as proxy:
        through = Redis.from_url(proxy.redis_url, socket_timeout=0.5, retry=Retry(NoBackoff(), 0))
        desk = Desk(through, Settings(redis_url=proxy.redis_url, lease_s=2))
        rule = proxy.lose("create", silent=silent)
        with pytest.raises(Exception, match="does not answer"):
            await desk.submit()
        assert rule.hits == proxy.lost == 1
        direct = Desk(redis, desk.settings)
        assert len((await direct.store.list_tasks("local")).tasks) == 1, "it was executed"
        await desk.submit()
        assert rule.hits == 1, "once means once"
        assert proxy.done["create"] == 2
        await through.aclose()


async def test_it_strikes_before_and_after(redis: Redis, valkey_url: str) -> None:
    struck: list[str] = []
    async with RedisProxy(valkey_url) as proxy:
        through = Redis.from_url(proxy.redis_url, retry=Retry(NoBackoff(), 0))
        desk = Desk(through, Settings(redis_url=proxy.redis_url, lease_s=2))
        await desk.submit()
        proxy.strike(lambda: struck.append("before"), nth=1, after=False)
        with pytest.raises(Exception, match="does not answer"):
            await desk.submit()
        proxy.clear()
        proxy.strike(lambda: struck.append("after"), nth=1, after=True)
        with pytest.raises(Exception, match="does not answer"):
            await desk.submit()
        assert struck == ["before", "after"]
        assert len((await Desk(redis, desk.settings).store.list_tasks("local")).tasks) == 2
        await through.aclose()


async def test_pipelines_and_pushes_pass(redis: Redis, valkey_url: str) -> None:
    async with RedisProxy(valkey_url) as proxy:
        through = Redis.from_url(proxy.redis_url)
        async with through.pipeline(transaction=False) as pipe:
            for number in range(200):
                pipe.set(f"k{number}", "x" * number)
                pipe.get(f"k{number}")
            replies = await pipe.execute()
        assert [len(reply) for reply in replies[1::2]] == list(range(200))
        async with through.pubsub() as listening:
            await listening.subscribe("room")
            assert (await listening.get_message(timeout=5))["type"] == "subscribe"
            await redis.publish("room", b"word")
            assert (await listening.get_message(timeout=5))["data"] == b"word"
        await through.aclose()


async def test_a_share_of_all_replies(redis: Redis, valkey_url: str) -> None:
    async with RedisProxy(valkey_url) as proxy:
        through = Redis.from_url(proxy.redis_url, retry=Retry(NoBackoff(), 20))
        desk = Desk(through, Settings(redis_url=proxy.redis_url, lease_s=2))
        await desk.submit()
        rule = proxy.lose_some(0.3, random.Random(1))
        for _ in range(40):
            await desk.store.reap()
        assert 5 < rule.hits < 40
        await through.aclose()
