"""G14: whatever is executed and not heard of is asked for again, and happens once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.faults.ground import direct, leases_of, read_to_end, sound, whole
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import Stack
from tests.support.redis_proxy import RedisProxy
from tests.support.valkey import Valkey
from tests.support.viewer import Viewer
from tests.support.wait import until
from unbroken.tasks.scripts import names

BATCH = {
    "instruction": "Say:",
    "items": [f"item {n}" for n in range(10)],
    "scripted": {"seed": 3, "tokens": 20, "rate": 200},
}
READ_ONLY = {"mend", "snapshot"}  # nothing to double
TOURED = {
    *("create", "claim", "append", "checkpoint", "item", "complete", "fail", "release", "heartbeat"),
    *("pause", "recover", "cancel", "replay", "purge", "reap"),
}
"""What certainly runs in a tour. The replies of all others (retention, callbacks, limits) are lost if they come by."""


@asynccontextmanager
async def stack_behind_a_proxy(**settings: object) -> AsyncIterator[tuple[Stack, RedisProxy]]:
    """Everything that we run speaks through the proxy."""
    with Valkey(aof=True) as valkey:
        async with (
            RedisProxy(valkey.url) as proxy,
            QuickStack(valkey=valkey, redis_url=proxy.redis_url, **settings) as stack,  # type: ignore[arg-type]
        ):
            yield stack, proxy


async def tour(stack: Stack) -> dict[str, str]:
    """One task for each thing that can happen to a task; ids by name. Every script runs in it."""
    api, ids = stack.api, {}

    async def submit(name: str, data: dict[str, Any], **body: Any) -> str:
        task_id: str = (await api.submit(data, key=f"tour-{name}", **body))["task_id"]
        ids[name] = task_id
        return task_id

    await submit("text", scripted(tokens=300, rate=150))
    await submit("batch", BATCH, kind="batch")
    await submit("retried", scripted(tokens=60, rate=200, fail="transient", fail_at=30))
    paused = await submit("paused", scripted(tokens=200, rate=100))
    cancelled = await submit("cancelled", scripted(tokens=5_000, rate=50))
    dead = await submit("dead", scripted(tokens=60, fail="permanent", fail_at=30))
    await api.until_length(paused, 200)
    assert (await api.post(paused, "pause")).is_success
    await api.until_state(paused, "paused")
    assert (await api.post(paused, "recover")).is_success
    assert (await api.post(cancelled, "cancel")).is_success
    await api.until_state(dead, "failed")
    assert (await api.http.post("/api/dead-letters/replay", json={"task_ids": [dead]})).is_success
    await api.until_length(ids["text"], 600)
    old = stack.workers.pop()
    await stack.start_worker()
    assert await old.stop() == 0
    return ids


async def test_every_script_loses_a_reply_once() -> None:
    async with (
        stack_behind_a_proxy(submits_per_minute=10_000, concurrency=8, backoff_base_s=0.1) as (stack, proxy),
        direct(stack) as desk,
    ):
        rules = {name: proxy.lose(name) for name in names() if name not in READ_ONLY}
        # the same again in the middle of things: a first call is often special
        again = {name: proxy.lose(name, nth=2) for name in ("append", "checkpoint", "item", "heartbeat")}
        ids = await tour(stack)
        for name, task_id in ids.items():
            await stack.api.until_state(task_id, "cancelled" if name == "cancelled" else "completed")
        assert (await stack.api.http.delete(f"/api/tasks/{ids.pop('cancelled')}")).status_code == 204
        for name, rule in (rules | again).items():
            if name in TOURED:
                await until(lambda rule=rule: rule.hits, f"a reply of {name} to be lost")  # type: ignore[misc]
        for name in ids:
            if name != "batch":
                tokens = {"text": 300, "paused": 200}.get(name, 60)
                viewer = await read_to_end(stack, ids[name], story(tokens=tokens))
                assert viewer.rewinds == 0
        await whole(stack, await Viewer(stack.url, ids["batch"]).follow())
        listed = (await stack.api.http.get("/api/tasks")).json()["items"]
        assert Counter(task["task_id"] for task in listed) == Counter(ids.values()), "one task for each submit"
        by_name = {name: next(t for t in listed if t["task_id"] == task_id) for name, task_id in ids.items()}
        assert by_name["retried"]["errors"] == 1
        assert by_name["text"]["crashes"] == by_name["text"]["errors"] == 0
        assert await leases_of(desk, ids["retried"]) == 2
        await sound(desk, ids.values())


async def test_five_of_a_hundred_replies_are_lost() -> None:
    """Every command of every process, for as long as it all takes."""
    async with stack_behind_a_proxy(concurrency=8, backoff_base_s=0.1) as (stack, proxy), direct(stack) as desk:
        proxy.lose_some(0.05, random.Random(5))
        ids = await tour(stack)
        viewers = [Viewer(stack.url, task_id) for task_id in ids.values()]
        await asyncio.gather(*(viewer.follow(cuts=3, chance=random.Random(n)) for n, viewer in enumerate(viewers)))
        proxy.clear()
        assert proxy.lost > 10
        for name, task_id in ids.items():
            await stack.api.until_state(task_id, "cancelled" if name == "cancelled" else "completed")
        await read_to_end(stack, ids["text"], story(tokens=300))
        await read_to_end(stack, ids["dead"], story(tokens=60))
        await sound(desk, ids.values())


async def test_an_owner_hears_what_really_happened() -> None:
    """Executed, not heard of, and sent again inside one request: the owner gets the first answer, not "not found" or
    "only failed tasks can be replayed"."""
    async with (
        stack_behind_a_proxy() as (stack, proxy),
        direct(stack) as desk,
    ):
        api, ids = stack.api, []
        bad = scripted(tokens=20, fail="permanent", fail_at=10)
        dead = (await api.submit(bad))["task_id"]
        await api.until_state(dead, "failed")
        later = (await api.submit(scripted(tokens=2_000, rate=10), run_at="2100-01-01T00:00:00Z"))["task_id"]
        for script, path, status in (
            ("pause", f"/api/tasks/{later}/pause", 200),
            ("recover", f"/api/tasks/{later}/recover", 202),
            ("cancel", f"/api/tasks/{later}/cancel", 200),
            ("replay", "/api/dead-letters/replay", 200),
        ):
            lost = proxy.lose(script)
            body = {"task_ids": [dead]} if script == "replay" else None
            answer = await api.http.post(path, json=body)
            assert (lost.hits, answer.status_code) == (1, status), f"{script}: {answer.text}"
            ids.append(answer.json())
        assert ids[-1] == {"replayed": 1, "task_ids": [dead], "refused": {}}
        await api.until_state(dead, {"completed", "failed"})
        await sound(desk, [dead, later])
        for task_id in (dead, later):
            lost = proxy.lose("purge")
            answer = await api.http.delete(f"/api/tasks/{task_id}")
            assert (lost.hits, answer.status_code) == (1, 204), answer.text
            assert (await api.http.delete(f"/api/tasks/{task_id}")).status_code == 404
        again = (await api.submit(bad))["task_id"]  # here it is the client that hears nothing, and asks again
        await api.until_state(again, "failed")
        key = {"Idempotency-Key": "delete-1"}
        for _ in range(2):
            assert (await api.http.delete(f"/api/tasks/{again}", headers=key)).status_code == 204
        assert (await api.http.delete(f"/api/tasks/{later}", headers=key)).status_code == 404
        traces = [raw for raw in await desk.redis.keys("*") if dead in raw.decode() or again in raw.decode()]
        assert traces == []


@pytest.mark.parametrize("script", ["claim", "append", "complete"])
async def test_a_reply_that_just_never_comes(script: str) -> None:
    """No broken connection tells: only the timeout of the call does. The lease is kept by the heartbeat meanwhile."""
    async with stack_behind_a_proxy() as (stack, proxy), direct(stack) as desk:
        rule = proxy.lose(script, silent=True)
        task_id = (await stack.api.submit(scripted(tokens=100, rate=100)))["task_id"]
        await stack.api.until_state(task_id, "completed")
        assert rule.hits == 1
        # a claim is repeated after its lease of 2 s has run out, or before that was noticed
        assert await leases_of(desk, task_id) in ({1, 2} if script == "claim" else {1})
        await read_to_end(stack, task_id, story(tokens=100))
        await sound(desk, [task_id])
