"""G6: a worker that was stopped, or cut off, past its lease comes back and changes nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from tests.faults.ground import direct, leases_of, lines, read_to_end, sound, whole
from tests.support.api import scripted, story
from tests.support.desk import Desk
from tests.support.nursery import QuickStack
from tests.support.processes import Stack
from tests.support.redis_proxy import RedisProxy
from tests.support.viewer import Viewer
from tests.support.wait import until

TOKENS = 350
RATED = {"seed": 7, "tokens": 60, "rate": 60}
TASKS: dict[str, dict[str, Any]] = {
    "text": scripted(tokens=200, rate=100),
    "batch": {"instruction": "Say:", "items": [f"item {n}" for n in range(12)], "scripted": RATED},
    "chain": {"steps": [{"name": f"s{n}", "prompt": f"part {n}"} for n in range(4)], "scripted": RATED},
}

LONG = TASKS["batch"] | {"scripted": RATED | {"tokens": 100}}


async def test_not_one_key_changes_when_zombies_wake_up() -> None:
    """One zombie that held a text, a batch and a chain: all its late words are refused."""
    async with QuickStack() as stack, direct(stack) as desk:
        ids = []
        for kind, data in TASKS.items():
            ids.append((await stack.api.submit(data, kind=kind))["task_id"])
        viewers = [Viewer(stack.url, task_id) for task_id in ids]
        watching = asyncio.gather(*(viewer.follow() for viewer in viewers))
        for task_id in ids:
            await until(partial(held, stack, task_id), f"{task_id} to move")
        zombie = stack.workers[0]
        zombie.freeze()
        await stack.start_worker()
        await watching
        for viewer in viewers:
            await whole(stack, viewer)
        assert viewers[0].text == story(tokens=200)
        before = [await desk.dump(task_id) for task_id in ids]
        zombie.thaw()
        for task_id in ids:
            await until(partial(lines, zombie.log, f"{task_id}: no longer ours"), "the zombie to see it")
        assert await zombie.stop() == 0
        assert [await desk.dump(task_id) for task_id in ids] == before
        for task_id in ids:
            assert await leases_of(desk, task_id) == 2
        await sound(desk, ids)


async def held(stack: Stack, task_id: str) -> bool:
    task = await stack.api.task(task_id)
    return bool(task["length"] > 100 or task["done"] > 0)


async def test_calls_that_arrive_after_the_takeover_are_refused() -> None:
    """The worker says it in time; the network delivers it while another is at work (A10, B7, E2). One zombie for each
    thing that a worker can say."""
    scripts = ["append", "checkpoint", "complete", "heartbeat", "item"]
    async with QuickStack(workers=0, concurrency=1) as stack, direct(stack) as desk, AsyncExitStack() as proxies:
        caught = []
        for script in scripts:
            proxy = await proxies.enter_async_context(RedisProxy(stack.valkey.url))
            nth, times = (1, 1) if script == "heartbeat" else (1 if script == "complete" else 2, 1_000)
            stop = proxy.stop_at(script, nth=nth, times=times)
            zombie = await stack.start_worker(redis_url=proxy.redis_url)
            tokens = 30 if script == "complete" else TOKENS
            kind, data = ("batch", LONG) if script == "item" else ("text", scripted(tokens=tokens, rate=50))
            task_id = (await stack.api.submit(data, kind=kind))["task_id"]
            await asyncio.wait_for(stop.hit.wait(), 30)
            caught.append((proxy, stop, zombie, task_id))
        for _, _, zombie, _ in caught:  # until now their hearts have kept the leases
            zombie.freeze()
        await stack.start_worker(concurrency=5)
        for _, _, _, task_id in caught:
            await until(partial(claimed_again, desk, task_id), "another worker to take over")
        for proxy, stop, _, _ in caught:
            assert stop.gate is not None
            stop.gate.set()
            await until(partial(idle, proxy), "the late call to be answered")
        for _, _, zombie, _ in caught:
            zombie.thaw()
        for script, (_, _, zombie, task_id) in zip(scripts, caught, strict=True):
            await until(partial(lines, zombie.log, f"{task_id}: no longer ours"), "the zombie to see it")
            # by the fence, that is, and not because the task has ended
            assert script == "complete" or (await stack.api.task(task_id))["state"] == "processing"
        for script, (_, _, _, task_id) in zip(scripts, caught, strict=True):
            task = await stack.api.until_state(task_id, "completed")
            assert (task["attempts"], task["errors"]) == (2, 0)
            if script != "item":
                text = story(tokens=30 if script == "complete" else TOKENS)
                assert (await read_to_end(stack, task_id, text)).rewinds == 0
        await sound(desk, [task_id for _, _, _, task_id in caught])


async def claimed_again(desk: Desk, task_id: str) -> bool:
    return await leases_of(desk, task_id) == 2


def idle(proxy: RedisProxy) -> bool:
    return not any(link.busy for link in proxy.links)


async def test_the_last_call_may_be_late_as_long_as_the_heart_beats() -> None:
    """D9: `complete` hangs for two leases; the lease is kept meanwhile, and the same worker ends the task."""
    async with QuickStack(workers=0) as stack, direct(stack) as desk, RedisProxy(stack.valkey.url) as proxy:
        proxy.late("complete", 4.5)
        await stack.start_worker(redis_url=proxy.redis_url)
        task_id = (await stack.api.submit(scripted(tokens=50)))["task_id"]
        await stack.api.until_state(task_id, "completed")
        assert await leases_of(desk, task_id) == 1
        await sound(desk, [task_id])
