"""G15: the database restarts, refuses, forgets its scripts, is full, is away. Everything comes back by itself: no task
starts again, nobody runs hot, and the logs stay short."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError

from tests.faults.ground import cpu_s, direct, lines, read_to_end, sound
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import Stack
from tests.support.valkey import Valkey
from tests.support.viewer import Viewer
from tests.support.wait import until

Trouble = Callable[[Stack, Any], Awaitable[None]]
TASKS = 4
OUTAGE_S = 8.0


async def kill(stack: Stack, client: Any) -> None:
    await asyncio.to_thread(stack.valkey.kill)
    await asyncio.to_thread(stack.valkey.start)


async def flush_scripts(stack: Stack, client: Any) -> None:
    for _ in range(5):
        await client.script_flush()
        await asyncio.sleep(0.1)


async def kill_clients(stack: Stack, client: Any) -> None:
    for _ in range(10):
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal")
        await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.3)


async def read_only(stack: Stack, client: Any) -> None:
    """A replica that was not promoted yet."""
    await client.execute_command("REPLICAOF", "127.0.0.1", "1")
    await asyncio.sleep(3)
    await client.execute_command("REPLICAOF", "NO", "ONE")


async def loading(stack: Stack, client: Any) -> None:
    """A restart that has much to read: it answers, but with LOADING."""
    async with client.pipeline(transaction=False) as pipe:
        for n in range(12_000):
            pipe.set(f"ballast:{n}", "x" * 200, ex=60)
        await pipe.execute()
    await asyncio.to_thread(stack.valkey.kill)
    # while it loads it listens to clients only after each 1,024 commands: about every 0.3 s here, a dozen times
    slow = {"key-load-delay": "300", "loading-process-events-interval-bytes": "1024"}
    starting = asyncio.to_thread(stack.valkey.start, slow)
    answers = asyncio.create_task(_answers_of(stack))
    await starting
    assert "LOADING" in await answers


async def _answers_of(stack: Stack) -> str:
    """What somebody hears who asks while it starts."""
    heard = ""
    async with Redis.from_url(stack.valkey.url, retry=Retry(NoBackoff(), 0)) as client:
        while "PONG" not in heard:
            try:
                await client.ping()
                heard += "PONG"
            except BusyLoadingError:
                heard += "LOADING "
            except RedisError:
                heard += "nothing "
            await asyncio.sleep(0.01)
    return heard


async def frozen(stack: Stack, client: Any) -> None:
    """It swallows everything for longer than a lease and answers then."""
    stack.valkey.signal(signal.SIGSTOP)
    await asyncio.sleep(4)
    stack.valkey.signal(signal.SIGCONT)


async def away(stack: Stack, client: Any) -> None:
    """Four leases long nobody is there."""
    await asyncio.to_thread(stack.valkey.kill)
    await asyncio.sleep(OUTAGE_S)
    await asyncio.to_thread(stack.valkey.start)


ROWS: list[dict[str, Trouble]] = [
    {"kill -9": kill, "SCRIPT FLUSH": flush_scripts, "CLIENT KILL": kill_clients, "READONLY": read_only},
    {"LOADING": loading, "frozen": frozen, "away": away},
]


async def test_every_trouble_in_a_row() -> None:
    """Two databases, each with its own row of troubles, at the same time: most of it is waiting."""
    await asyncio.gather(*(_row(troubles) for troubles in ROWS))


async def _row(troubles: dict[str, Trouble]) -> None:
    async with QuickStack(workers=2) as stack, direct(stack) as desk:
        for name, trouble in troubles.items():
            await _through(stack, desk.redis, name, trouble)
        listed = (await stack.api.http.get("/api/tasks", params={"limit": 200})).json()["items"]
        assert len(listed) == TASKS * len(troubles)
        await sound(desk, [task["task_id"] for task in listed])


async def _through(stack: Stack, client: Redis, name: str, trouble: Trouble) -> None:
    """Tasks that run when it happens, and viewers who watch."""
    parts = [*stack.servers, *stack.workers]
    before = [(cpu_s(part), len(lines(part.log))) for part in parts]
    ids = [(await stack.api.submit(scripted(seed=n, tokens=100, rate=40), topic=name))["task_id"] for n in range(TASKS)]
    viewers = [Viewer(stack.url, task_id) for task_id in ids]
    watching = asyncio.gather(*(viewer.follow(within=90) for viewer in viewers))
    await asyncio.gather(*(viewer.seen(150) for viewer in viewers))
    await trouble(stack, client)
    await watching
    for n, viewer in enumerate(viewers):
        viewer.check()
        assert viewer.text == story(seed=n, tokens=100), name
        assert viewer.rewinds == 0, name
        task = await stack.api.task(viewer.task_id)
        assert (task["attempts"], task["errors"], task["crashes"]) == (1, 0, 0), f"{name}: nobody was taken for dead"
    for part, (cpu, count) in zip(parts, before, strict=True):
        assert part.alive, f"{part.name} died of {name}"
        assert len(lines(part.log)) - count < 40, f"{name}: {part.tail(60)}"
        assert cpu_s(part) - cpu < 5, f"{name}: {part.name} ran hot"
        assert not lines(part.log, "Traceback"), f"{name}: {part.tail(60)}"


async def test_a_full_database_refuses_and_goes_on_when_there_is_room() -> None:
    """Full for a moment: nobody notices. Full for long: tasks pause with all they have, and recover exactly."""
    valkey = Valkey(aof=True)
    try:
        await asyncio.to_thread(valkey.start)
        async with QuickStack(valkey=valkey) as stack, direct(stack) as desk:
            ids = [(await stack.api.submit(scripted(seed=n, tokens=1_500, rate=60)))["task_id"] for n in range(3)]
            for task_id in ids:
                await stack.api.until_length(task_id, 100)
            await desk.redis.config_set("maxmemory", "1mb")
            refused = await stack.api.http.post("/api/tasks", json={"kind": "text", "input": scripted(tokens=5)})
            assert refused.status_code in (503, 507)
            assert refused.headers["content-type"].startswith("application/problem+json")
            assert "full" in refused.text
            await asyncio.sleep(1)
            await desk.redis.config_set("maxmemory", "0")
            for task_id in ids:
                task = await stack.api.until_length(task_id, 700)
                assert (task["state"], task["attempts"]) == ("processing", 1)
            await desk.redis.config_set("maxmemory", "1mb")
            for task_id in ids:
                task = await stack.api.until_state(task_id, "paused", within=90)
                assert task["reason"] == "checkpoint_failed"
            assert (await stack.api.http.get("/healthz")).status_code == 200
            await sound(desk, ids)
            await desk.redis.config_set("maxmemory", "0")
            for task_id in ids:
                assert (await stack.api.post(task_id, "recover")).status_code == 202
            for n, task_id in enumerate(ids):
                await stack.api.until_state(task_id, "completed", within=60)
                await read_to_end(stack, task_id, story(seed=n, tokens=1_500))
            await sound(desk, ids)
    finally:
        valkey.close()


async def test_a_database_that_may_forget_is_refused() -> None:
    """Eviction would silently drop leases and tasks: neither a server nor a worker starts on it."""
    with Valkey(options={"maxmemory-policy": "volatile-ttl"}) as valkey:
        stack = QuickStack(servers=0, workers=0, valkey=valkey)
        try:
            worker = await stack.start_worker()
            with pytest.raises(RuntimeError, match="evict"):
                await stack.start_server()
            await until(lambda: not worker.alive, "the worker to refuse")
            assert worker.returncode != 0
            assert lines(worker.log, "volatile-ttl")
            willing = await stack.start_worker(force=True)
            await until(lambda: lines(willing.log, "may evict"), "a warning")
            assert willing.alive
        finally:
            await stack.close()
