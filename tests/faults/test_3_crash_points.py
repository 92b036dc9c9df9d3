"""A process dies between every two words that it has with Redis. All of them come to the same end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from tests.faults.ground import direct, read_to_end, sound
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import Process, Stack
from tests.support.redis_proxy import RedisProxy, Rule
from tests.support.valkey import Valkey
from tests.support.wait import until

POINTS = 12
TOKENS = 48
MANY: dict[str, Any] = {"checkpoint_tokens": 12, "flush_ms": 20, "concurrency": 1, "backoff_base_s": 0.05}


async def victim(
    stack: Stack, proxies: AsyncExitStack, *, nth: int, after: bool, script: str | None = None
) -> tuple[Process, Rule]:
    """A worker that dies before, or after, its nth call (of this script)."""
    proxy = await proxies.enter_async_context(RedisProxy(stack.valkey.url))
    worker = await stack.start_worker(redis_url=proxy.redis_url)
    return worker, proxy.strike(worker.kill, nth=nth, after=after, script=script)


async def test_a_worker_dies_before_and_after_each_of_its_calls() -> None:
    """One task and one victim for each point; then one worker finishes what all of them have left."""
    async with QuickStack(workers=0, **MANY) as stack, direct(stack) as desk, AsyncExitStack() as proxies:
        places = [(nth, after) for nth in range(1, POINTS + 1) for after in (False, True)]
        ids = [(await stack.api.submit(scripted(tokens=TOKENS, rate=200)))["task_id"] for _ in places]
        rules = [(await victim(stack, proxies, nth=nth, after=after))[1] for nth, after in places]
        await until(lambda: all(rule.hits for rule in rules), "every victim to be struck", within=60)
        await stack.start_worker(concurrency=50)
        for task_id in ids:
            await stack.api.until_state(task_id, "completed", within=60)
            assert (await read_to_end(stack, task_id, story(tokens=TOKENS))).rewinds == 0
        await sound(desk, ids)
        assert {rule.what for rule in rules} >= {"claim", "append", "checkpoint"}
        tasks = [await stack.api.task(task_id) for task_id in ids]
        assert all(task["errors"] == 0 for task in tasks)


async def test_a_worker_dies_around_its_last_words() -> None:
    """complete, fail, item and release, each before and after."""
    batch = {"instruction": "Say", "items": ["a", "b", "c"], "scripted": {"tokens": 20, "rate": 200}}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "complete": ("text", scripted(tokens=TOKENS, rate=200)),
        "fail": ("text", scripted(tokens=TOKENS, rate=200, fail="transient", fail_at=24)),
        "item": ("batch", batch),
        "release": ("text", scripted(tokens=TOKENS, rate=15)),
    }
    async with QuickStack(workers=0, **MANY) as stack, direct(stack) as desk, AsyncExitStack() as proxies:
        ids: dict[tuple[str, bool], str] = {}
        for script, (kind, data) in kinds.items():
            for after in (False, True):
                task_id = ids[script, after] = (await stack.api.submit(data, kind=kind))["task_id"]
                worker, rule = await victim(stack, proxies, nth=1, after=after, script=script)
                if script == "release":
                    await stack.api.until_length(task_id, 50)
                    asking = asyncio.create_task(worker.stop())
                    await asyncio.wait_for(rule.hit.wait(), 30)
                    await asking
                await asyncio.wait_for(rule.hit.wait(), 30)
        await stack.start_worker(concurrency=50)
        for (script, after), task_id in ids.items():
            task = await stack.api.until_state(task_id, "completed", within=60)
            # a failure that was never told is a lost worker, and the script fails once more or not at all
            assert task["errors"] == (1 if (script, after) == ("fail", True) else 0)
            if script != "item":
                assert (await read_to_end(stack, task_id, story(tokens=TOKENS))).rewinds == 0
        await sound(desk, ids.values())


async def test_a_server_dies_around_each_thing_that_a_person_asks() -> None:
    """create, pause, recover, cancel and replay: the client hears nothing, asks again with the same key, and it happens
    once."""
    with Valkey(aof=True) as valkey:
        async with (
            RedisProxy(valkey.url) as proxy,
            QuickStack(workers=0, valkey=valkey, redis_url=proxy.redis_url) as stack,
            direct(stack) as desk,
        ):
            for after in (False, True):
                await _asked_twice(stack, proxy, after)
            listed = (await stack.api.http.get("/api/tasks")).json()["items"]
            assert len(listed) == 4
            await sound(desk, [task["task_id"] for task in listed])


async def _asked_twice(stack: Stack, proxy: RedisProxy, after: bool) -> None:
    async def ask(script: str, call: Callable[[], Awaitable[Any]]) -> Any:
        rule = proxy.strike(stack.servers[0].kill, nth=1, after=after, script=script)
        with pytest.raises(httpx.TransportError):
            await call()
        assert rule.hits == 1
        proxy.clear()
        await stack.start_server(0)
        return await call()

    api = stack.api
    task = await ask("create", lambda: api.submit(scripted(tokens=200, rate=50), key=f"k-{after}"))
    task_id = task["task_id"]
    assert (await ask("pause", lambda: api.post(task_id, "pause"))).status_code == 200
    assert (await api.task(task_id))["state"] == "paused"
    recovered = await ask("recover", lambda: api.post(task_id, "recover"))
    assert recovered.status_code == (200 if after else 202)
    assert recovered.json()["recovery_id"] == (await api.post(task_id, "recover")).json()["recovery_id"]
    assert (await ask("cancel", lambda: api.post(task_id, "cancel"))).json()["state"] == "cancelled"
    dead = (await api.submit(scripted(tokens=20, fail="permanent", fail_at=10), key=f"d-{after}"))["task_id"]
    worker = await stack.start_worker(redis_url=stack.valkey.url)
    await api.until_state(dead, "failed")
    worker.kill()
    stack.workers.remove(worker)
    body = {"task_ids": [dead]}
    await ask("replay", lambda: api.http.post("/api/dead-letters/replay", json=body))
    assert (await api.task(dead))["state"] == "recovering"
