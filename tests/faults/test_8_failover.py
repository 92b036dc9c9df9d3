"""A failover that loses the last moment: the replica that takes over knows less than everybody has seen."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

from tests.faults.ground import direct, read_to_end, sound
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import free_port
from tests.support.redis_proxy import RedisProxy
from tests.support.valkey import Valkey
from tests.support.viewer import Viewer, WireError
from tests.support.wait import until
from unbroken.tasks import keys

TOKENS = 200
ITEMS: dict[str, object] = {"instruction": "Say it.", "items": [f"item {n}" for n in range(60)]}
ITEMS["scripted"] = {"tokens": 10, "rate": 20}
QUICK = {"repl-diskless-sync-delay": "0"}


async def watch(viewer: Viewer) -> None:
    """To the end. A viewer that sees ids go back does what a page does: it reads everything again."""
    deadline = time.monotonic() + 90
    while viewer.end is None:
        try:
            await viewer.follow(within=deadline - time.monotonic())
        except WireError:
            viewer.text, viewer.last_id, viewer.end = "", None, None
            viewer.events.clear()


async def test_a_replica_takes_over_without_the_last_moment() -> None:
    """No task fails of it, no epoch is given out twice, and everybody ends with the exact text."""
    with (
        Valkey(aof=True, port=free_port(), options=QUICK) as primary,
        Valkey(aof=True, port=free_port(), options=QUICK) as replica,
    ):
        async with (
            RedisProxy(primary.url) as proxy,
            QuickStack(valkey=replica, redis_url=proxy.redis_url, concurrency=8) as stack,
            direct(stack) as desk,
        ):
            await desk.redis.execute_command("REPLICAOF", "127.0.0.1", primary.port)

            async def following() -> bool:
                return bool((await desk.redis.info("replication"))["master_link_status"] == "up")

            await until(following, "the replica to follow")
            ids = [(await stack.api.submit(scripted(seed=n, tokens=TOKENS, rate=40)))["task_id"] for n in range(4)]
            batch = (await stack.api.submit(ITEMS, kind="batch"))["task_id"]
            viewers = [Viewer(stack.url, task_id) for task_id in ids]
            watching = asyncio.gather(*(watch(viewer) for viewer in viewers))
            await asyncio.gather(*(viewer.seen(300) for viewer in viewers))
            await desk.redis.execute_command("REPLICAOF", "NO", "ONE")  # from here on it hears no more
            known = [len(viewer.text) for viewer in viewers]
            finished = await desk.redis.hlen(keys.key("items", batch))
            lost = (await stack.api.submit(scripted(seed=9, tokens=20)))["task_id"]

            async def more_items() -> bool:
                return bool((await stack.api.task(batch))["done"] >= finished + 2)

            await until(more_items, "items that the replica does not hear of")
            await asyncio.gather(*(viewer.seen(at + 150) for viewer, at in zip(viewers, known, strict=True)))
            epochs = [int((await stack.api.task(task_id))["last_event_id"].split("-")[0]) for task_id in ids]
            await asyncio.to_thread(primary.kill)
            proxy.target = replica.url
            for n, (task_id, epoch) in enumerate(zip(ids, epochs, strict=True)):
                task = await stack.api.until_state(task_id, "completed", within=60)
                assert (task["errors"], task["warning"]) == (0, None)
                assert task["attempts"] <= 2
                await read_to_end(stack, task_id, story(seed=n, tokens=TOKENS))
                given = {int(event_id.split("-")[0]) for event_id, _, _ in await desk.log(task_id)}
                assert all(a < b for a, b in pairwise(sorted(given)))
                assert min(given) <= epoch
            await watching
            for n, viewer in enumerate(viewers):
                viewer.check()
                assert viewer.text == story(seed=n, tokens=TOKENS)
            assert (await stack.api.http.get(f"/api/tasks/{lost}")).status_code == 404, "only what nobody else heard of"
            await stack.api.until_state(batch, "completed", within=60)
            result = (await stack.api.http.get(f"/api/tasks/{batch}/result")).json()
            assert [item["index"] for item in result["items"]] == list(range(60)), "items are missing"
            await sound(desk, [*ids, batch])
