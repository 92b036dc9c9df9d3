"""Creating, showing and listing tasks: the answers of section 4, word for word where the contract has words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.server.asking import GOOD, problem, submit
from tests.support.desk import Desk
from unbroken.tasks import keys
from unbroken.tasks.settings import Settings


async def test_the_task_object_has_what_the_contract_says(client: httpx.AsyncClient) -> None:
    task = await submit(client, sender="cron", topic="report", priority="high", recovery="manual", max_attempts=5)
    names = (
        "task_id kind state reason sender topic priority attempts errors max_attempts crashes max_crashes recovery "
        "progress done total unit length last_event_id checkpoint stale error retry_at created_at started_at "
        "updated_at finished_at links"
    )
    assert set(names.split()) <= task.keys()
    assert (task["sender"], task["topic"], task["priority"], task["max_attempts"]) == ("cron", "report", "high", 5)
    shown = (await client.get(f"/api/tasks/{task['task_id']}")).json()
    assert shown == task
    assert "Hello" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": {}}, "input"),
        ({"input": {"prompt": ""}}, "input.prompt"),
        ({"input": {"prompt": "  \n"}}, "input.prompt"),
        ({"input": {"prompt": 5}}, "input.prompt"),
        ({"input": {"prompt": "x", "promt": "y"}}, "input.promt"),
        ({"input": {"prompt": "x"}, "prioritty": "high"}, "prioritty"),
        ({"input": {"prompt": "x"}, "priority": "urgent"}, "priority"),
        ({"input": {"prompt": "x"}, "kind": "nope"}, "kind"),
        ({"input": {"prompt": "x"}, "kind": 7}, "kind"),
        ({"input": {"prompt": "x"}, "max_attempts": "3"}, "max_attempts"),
        ({"input": {"prompt": "x"}, "max_attempts": 0}, "max_attempts"),
        ({"input": {"prompt": "x"}, "run_at": "2026-01-01T00:00:00"}, "run_at"),
        ({"input": {"prompt": "x"}, "run_at": "soon"}, "run_at"),
        ({"input": {"prompt": "x", "max_tokens": 2**80}}, "input.max_tokens"),
        ({"kind": "batch", "input": {"instruction": "x", "items": []}}, "input.items"),
        ({"kind": "batch", "input": {"instruction": "x", "items": ["a", 5]}}, "input.items.1"),
        ({"kind": "chain", "input": {"steps": [{"name": "a"}]}}, "input.steps.0.prompt"),
        ({"input": {"prompt": "x"}, "sender": "a\nb"}, "sender"),
        ({"input": {"prompt": "\ud800"}}, "input.prompt"),
    ],
)
async def test_wrong_fields_are_named(client: httpx.AsyncClient, body: Any, field: str) -> None:
    answer = await client.post("/api/tasks", content=json.dumps(body), headers={"Content-Type": "application/json"})
    errors = problem(answer, 422)["errors"]
    assert field in [error["field"] for error in errors], errors
    assert all(error["message"] for error in errors)
    assert (await client.get("/api/tasks")).json()["items"] == []


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"", {}, 400),
        (b"[1]", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b'{"input":NaN}', {}, 400),
        (b'{"input":Infinity}', {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"a":' * 50_000, {}, 400),
        (b'{"input":%s}' % (b"9" * 5_000), {}, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {"Content-Encoding": "gzip"}, 415),
        (b"{}", {"Idempotency-Key": "a b"}, 400),
        (b"{}", {"Idempotency-Key": "x" * 256}, 400),
        (b"{}", {"Idempotency-Key": ""}, 400),
    ],
)
async def test_malformed_bodies(
    client: httpx.AsyncClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await client.post("/api/tasks", content=content, headers={"Content-Type": "application/json"} | headers)
    problem(answer, status)


async def test_a_body_is_limited_while_it_is_read(client: httpx.AsyncClient, settings: Settings) -> None:
    big = b'{"input":{"prompt":"' + b"x" * settings.body_max + b'"}}'
    problem(await client.post("/api/tasks", content=big, headers={"Content-Type": "application/json"}), 413)

    async def parts() -> Any:
        for _ in range(settings.body_max // 65_536 + 2):
            yield b"x" * 65_536

    problem(await client.post("/api/tasks", content=parts(), headers={"Content-Type": "application/json"}), 413)
    await submit(client)


async def test_one_key_makes_one_task(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k-1"}
    answers = await asyncio.gather(*(client.post("/api/tasks", json=GOOD, headers=headers) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert sum(answer.headers.get("idempotent-replayed") == "true" for answer in answers) == 19
    other = {"input": {"prompt": "Other"}}
    problem(await client.post("/api/tasks", json=other, headers=headers), 422)
    assert len((await client.get("/api/tasks")).json()["items"]) == 1


async def test_run_at_waits(client: httpx.AsyncClient, desk: Desk) -> None:
    task = await submit(client, run_at="2100-01-01T00:00:00+02:00")
    assert task["retry_at"] == "2099-12-31T22:00:00.000Z"
    assert isinstance(await desk.holder().claim("t"), float)


@pytest.mark.parametrize("far", ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:00-00:01"])
async def test_what_no_calendar_knows_is_refused(client: httpx.AsyncClient, far: str) -> None:
    body = problem(await client.post("/api/tasks", json=GOOD | {"run_at": far}), 422)
    assert [error["field"] for error in body["errors"]] == ["run_at"]
    assert (await client.get("/api/tasks")).json()["items"] == []


async def test_the_ends_of_the_calendar_can_be_asked_for(client: httpx.AsyncClient, desk: Desk) -> None:
    never = await submit(client, run_at="9999-12-31T23:59:59.999999Z")
    assert never["retry_at"] == "9999-12-31T23:59:59.999Z"
    long_ago = await submit(client, run_at="0001-01-01T00:00:00+14:00")
    assert (await desk.claim()).lease.task_id == long_ago["task_id"]
    listed = (await client.get("/api/tasks")).json()["items"]
    assert [task["task_id"] for task in listed] == [long_ago["task_id"], never["task_id"]]
    assert listed[1]["retry_at"] == never["retry_at"]


# show and list


async def test_etag_and_retry_after(client: httpx.AsyncClient, desk: Desk) -> None:
    url = f"/api/tasks/{(await submit(client))['task_id']}"
    answer = await client.get(url)
    assert answer.headers["retry-after"] == "1"
    again = await client.get(url, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["retry-after"] == "1"
    where = keys.key("task", url.rsplit("/", 1)[1])
    await desk.redis.hincrby(where, "created", -11_000)
    changed = await client.get(url, headers={"If-None-Match": answer.headers["etag"]})
    assert (changed.status_code, changed.headers["retry-after"]) == (200, "5")
    await client.post(f"{url}/cancel")
    assert "retry-after" not in (await client.get(url)).headers


async def test_lists(client: httpx.AsyncClient) -> None:
    made = [await submit(client, sender="a" if at % 2 else "b", priority="low") for at in range(7)]
    await client.post(f"/api/tasks/{made[0]['task_id']}/cancel")
    newest_first = [task["task_id"] for task in reversed(made)]
    seen: list[str] = []
    cursor = None
    while True:
        query = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/api/tasks", params=query)).json()
        seen += [task["task_id"] for task in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == newest_first

    async def ids(**query: str) -> list[str]:
        return [task["task_id"] for task in (await client.get("/api/tasks", params=query)).json()["items"]]

    assert await ids(sender="a") == newest_first[1::2]
    assert await ids(state="cancelled") == [made[0]["task_id"]]
    assert await ids(state="pending", sender="b", kind="text", priority="low") == newest_first[:-1][0::2]
    assert await ids(topic="x") == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"limit": "0"}, 422),
        ({"limit": "201"}, 422),
        ({"limit": "x"}, 422),
        ({"state": "x"}, 422),
        ({"cursor": "x"}, 400),
    ],
)
async def test_bad_queries(client: httpx.AsyncClient, query: dict[str, str], status: int) -> None:
    problem(await client.get("/api/tasks", params=query), status)
