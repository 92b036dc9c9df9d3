"""A task's story without its text: for viewers who come late, when the stream has left out what was superseded."""

from __future__ import annotations

import httpx

from tests.support.desk import OWNER, Desk
from tests.support.wait import until
from unbroken.tasks.lease import Last


async def test_the_story_of_a_task_is_told_to_those_who_come_late(client: httpx.AsyncClient, desk: Desk) -> None:
    made = (await client.post("/api/tasks", json={"input": {"prompt": "x"}, "max_crashes": 9})).json()
    first = await desk.claim()
    await desk.write(first.lease, "one ", at=0, batch=1)
    await until(lambda: _state(client, made, "recovering"), "the lost worker to be noticed", within=20)
    second = await desk.claim()
    await desk.holder().release(second.lease, Last(-1), to="recovering")
    third = await desk.claim()
    await desk.store.pause(third.lease.task_id, OWNER, actor="a")
    await desk.holder().release(third.lease, Last(-1), to="paused", reason="requested")
    await client.post(f"{made['links']['self']}/recover")
    fourth = await desk.claim()
    await desk.complete(fourth.lease, "one ")

    items = (await client.get(f"{made['links']['self']}/history")).json()["items"]
    told = [(i["event"], i["data"]["state"], i["data"].get("reason")) for i in items]
    assert told == [
        ("status", "pending", None),
        ("status", "processing", None),
        ("status", "recovering", "worker_lost"),
        ("status", "processing", None),
        ("status", "recovering", "shutdown"),
        ("status", "processing", None),
        ("status", "paused", "requested"),
        ("status", "recovering", None),
        ("status", "processing", None),
        ("done", "completed", None),
    ]
    assert [i["id"] for i in items] == [
        e for e, name, _ in await desk.log(made["task_id"]) if name in ("status", "done")
    ]


async def _state(client: httpx.AsyncClient, task: dict[str, dict[str, str]], state: str) -> bool:
    return bool((await client.get(task["links"]["self"])).json()["state"] == state)
