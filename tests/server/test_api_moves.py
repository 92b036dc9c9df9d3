"""What moves a task, what is saved of it, dead letters, and what operators ask."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.server.asking import problem, submit
from tests.server.author import begin
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.tasks import codec, keys
from unbroken.tasks.lease import Last


async def test_recover(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    url = f"/api/tasks/{author.task.id}"
    assert problem(await client.post(f"{url}/recover"), 409)["state"] == "processing"
    await author.write("abc")
    await author.save()
    await desk.holder().release(author.held.lease, author.last(), to="paused", reason="requested")
    answers = await asyncio.gather(*(client.post(f"{url}/recover") for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [202]
    assert len({answer.json()["recovery_id"] for answer in answers}) == 1
    saved = answers[0].json()["from_checkpoint"]
    assert (saved["offset"], saved["where"]) == (3, "inline")
    assert saved == (await client.get(f"{url}/checkpoint")).json()
    await desk.claim()
    running = await client.post(f"{url}/recover", headers={"Idempotency-Key": "k"})
    assert (running.status_code, running.json()["recovery_id"]) == (200, answers[0].json()["recovery_id"])
    await client.post(f"{url}/cancel")
    assert problem(await client.post(f"{url}/recover"), 409)["state"] == "cancelled"


async def test_pause_waits_for_the_worker(client: httpx.AsyncClient, desk: Desk) -> None:
    task = await submit(client)
    url = f"/api/tasks/{task['task_id']}"
    answer = await client.post(f"{url}/pause")
    assert (answer.status_code, answer.json()["state"], answer.json()["reason"]) == (200, "paused", "requested")
    assert (await client.post(f"{url}/pause")).status_code == 200
    await client.post(f"{url}/recover")
    held = await desk.claim()
    asked = asyncio.create_task(client.post(f"{url}/pause"))
    await until(lambda: _wish(desk, task["task_id"]), "the wish to arrive")
    await desk.holder().release(held.lease, Last(0), to="paused", reason="requested")
    answer = await asked
    assert (answer.status_code, answer.json()["state"]) == (200, "paused")
    await client.post(f"{url}/recover")
    held = await desk.claim()
    asked = asyncio.create_task(client.post(f"{url}/pause"))
    while not asked.done():  # it lives, and is deep in something that it does not leave
        await desk.beat(held.lease)
        await asyncio.wait({asked}, timeout=0.2)
    silent = await asked
    assert (silent.status_code, silent.json()["state"]) == (202, "processing")
    await client.post(f"{url}/cancel")
    problem(await client.post(f"{url}/pause"), 409)


async def _wish(desk: Desk, task_id: str) -> bool:
    return bool(await desk.redis.hget(keys.key("task", task_id), "wish"))


async def test_cancel_and_delete(client: httpx.AsyncClient, desk: Desk) -> None:
    url = f"/api/tasks/{(await submit(client))['task_id']}"
    problem(await client.delete(url), 409)
    first, second = await client.post(f"{url}/cancel"), await client.post(f"{url}/cancel")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert first.json()["state"] == "cancelled"
    assert (await client.delete(url)).status_code == 204
    problem(await client.get(url), 404)
    assert [key for key in await desk.redis.keys("*") if url.rsplit("/", 1)[1].encode() in key] == []


async def test_checkpoint_says_what_is_saved(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    problem(await client.get(f"/api/tasks/{author.task.id}/checkpoint"), 404)
    await author.write("abc")
    await author.save()
    saved = (await client.get(f"/api/tasks/{author.task.id}/checkpoint")).json()
    assert set(saved) == {"event_id", "offset", "progress", "size", "saved_at", "where"}
    sealed = codec.seal({"n": 1}, schema=1, limit=1000)
    assert saved["size"] == sealed.size


async def test_dead_letters(client: httpx.AsyncClient, desk: Desk) -> None:
    tasks = []
    for group in ("g1", "g1", "g2"):
        author = await begin(desk)
        await desk.fail(author.held.lease, retryable=False, group=group)
        tasks.append(author.task.id)
    groups = (await client.get("/api/dead-letters")).json()["groups"]
    assert sorted((group["group"], group["count"]) for group in groups) == [("g1", 2), ("g2", 1)]
    listed = (await client.get("/api/dead-letters", params={"group": "g1"})).json()["items"]
    assert {task["task_id"] for task in listed} == set(tasks[:2])
    url = "/api/dead-letters/replay"
    answer = (await client.post(url, json={"task_ids": [tasks[2], "s0-unknown"]})).json()
    assert (answer["replayed"], answer["task_ids"], list(answer["refused"])) == (1, [tasks[2]], ["s0-unknown"])
    again = (await client.post(url, json={"task_ids": [tasks[2]]})).json()
    assert (again["replayed"], list(again["refused"])) == (0, [tasks[2]])
    assert (await client.post(url, json={"group": "g1"})).json()["replayed"] == 2
    assert (await client.post(url, json={"all": True})).json()["replayed"] == 0
    wrong: list[dict[str, Any]] = [
        {"group": "a", "all": True},
        {"task_ids": []},
        {"all": False},
        {"x": 1},
        {"task_ids": "a"},
    ]
    for bad in [{}, *wrong]:
        problem(await client.post(url, json=bad), 422)


async def test_stats_and_metrics(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.complete()
    for _ in range(2):
        await desk.submit()
    failing = await desk.claim()
    await desk.fail(failing.lease, retryable=False)
    await desk.submit(owner="mallory")
    stats = (await client.get("/api/stats")).json()
    assert (stats["queue_depth"], stats["in_flight"]) == (1, 0)
    assert (stats["states"]["completed"], stats["states"]["failed"], stats["states"]["pending"]) == (1, 1, 1)
    assert stats["last_hour"] == {"successes": 1, "failures": 1, "failure_ratio": 0.5}
    assert stats["oldest_pending_s"] >= 0
    text = (await client.get("/metrics")).text
    for line in ("unbroken_redis_up 1.0", 'unbroken_tasks{index="ready"} 2.0', "unbroken_viewers 0.0"):
        assert line in text
    assert 'unbroken_ended_last_hour{result="failed"} 1.0' in text
    assert "mallory" not in text


async def test_health(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).status_code == 200
    await until(lambda: _ready(client), "the server to be ready")


async def _ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200
