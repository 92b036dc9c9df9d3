"""A task is found again by what was asked, by its owner only, and no longer than it is kept."""

from __future__ import annotations

import json

import httpx

from tests.server.asking import problem, submit
from tests.support.desk import Desk
from unbroken.tasks import keys

INPUT = {"prompt": "Write about a lighthouse.\nAt length.", "max_tokens": 40}


async def test_the_input_comes_back_as_it_was_given(client: httpx.AsyncClient) -> None:
    task = await submit(client, input=INPUT)
    assert (await client.get(f"/api/tasks/{task['task_id']}/input")).json() == INPUT


async def test_titles_of_many_in_one_call(client: httpx.AsyncClient, desk: Desk) -> None:
    text = await submit(client, input=INPUT)
    batch = await submit(client, kind="batch", input={"instruction": "Translate:", "items": ["a"]})
    foreign = await desk.submit(owner="other")
    assert "lighthouse" not in json.dumps(text)
    asked = [text["task_id"], batch["task_id"], foreign.id, "nonsense", keys.new_task_id()]
    answer = await client.get("/api/titles", params={"task": asked})
    assert answer.json() == {
        "titles": {text["task_id"]: "Write about a lighthouse.", batch["task_id"]: "Translate:"},
    }


async def test_how_many_titles(client: httpx.AsyncClient) -> None:
    problem(await client.get("/api/titles"), 400)
    problem(await client.get("/api/titles", params={"task": ["x"] * 201}), 400)
    assert (await client.get("/api/titles", params={"task": ["x"] * 200})).json() == {"titles": {}}


async def test_nobody_else_sees_the_input(client: httpx.AsyncClient, desk: Desk) -> None:
    foreign = await desk.submit(owner="other")
    problem(await client.get(f"/api/tasks/{foreign.id}/input"), 404)
    problem(await client.get(f"/api/tasks/{keys.new_task_id()}/input"), 404)


async def test_what_is_not_kept_is_said(client: httpx.AsyncClient, desk: Desk) -> None:
    task = await submit(client, input=INPUT)
    await desk.store.redis.delete(keys.key("in", task["task_id"]))
    problem(await client.get(f"/api/tasks/{task['task_id']}/input"), 410)
    await desk.store.redis.hset(keys.key("task", task["task_id"]), "shed", "1")
    problem(await client.get(f"/api/tasks/{task['task_id']}/input"), 410)


async def test_the_same_submit_twice_is_one_task_with_one_title(client: httpx.AsyncClient) -> None:
    header = {"Idempotency-Key": "once"}
    first = await client.post("/api/tasks", json={"input": INPUT}, headers=header)
    again = await client.post("/api/tasks", json={"input": INPUT}, headers=header)
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"
