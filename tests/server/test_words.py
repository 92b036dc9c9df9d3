"""What a newcomer meets: fields that only a script knows, numbers as people write them, where a text is, what waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.server.asking import problem, submit
from tests.server.author import begin
from tests.server.site import running
from tests.support.desk import Desk
from unbroken.tasks.settings import Settings

SCRIPTED = {"input": {"prompt": "x", "max_tokens": 5, "scripted": {"seed": 3}}}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A server that knows its workers' backend, as `up` tells it."""
    return settings.model_copy(update={"backend": "local"})


async def test_a_script_is_only_told_where_the_backend_is_one(
    client: httpx.AsyncClient, desk: Desk, settings: Settings
) -> None:
    kinds: list[dict[str, Any]] = [
        {"kind": "text", "input": {"prompt": "x"}},
        {"kind": "batch", "input": {"instruction": "x", "items": ["a"]}},
        {"kind": "chain", "input": {"steps": [{"name": "a", "prompt": "x"}]}},
    ]
    for body in kinds:
        body["input"]["scripted"] = {}
        (error,) = problem(await client.post("/api/tasks", json=body), 422)["errors"]
        assert error["field"] == "input.scripted"
        assert error["message"].startswith("There is no such field. Known are ")
        assert "scripted" not in error["message"]
    assert "scripted" not in (await client.get("/api/openapi.json")).text
    with running(settings.model_copy(update={"backend": "scripted"})) as site:
        async with httpx.AsyncClient(base_url=site.url, timeout=20, trust_env=False) as other:
            assert (await submit(other, **SCRIPTED))["total"] == 200
            assert "scripted" in (await other.get("/api/openapi.json")).text


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"prompt": "x", "max_tokens": 5_000_000}, "input.max_tokens", "Must be 1000000 or less."),
        ({"prompt": "x", "temperature": 2.5}, "input.temperature", "Must be 2 or less."),
        ({"messages": [{"role": "user", "content": ""}]}, "input.messages", "At least one message must have text"),
        ({"prompt": "x", "stop": [""]}, "input.stop.0", "Must not be empty."),
        ({"prompt": "x", "stop": 3}, "input.stop", "Must be a list."),
    ],
)
async def test_refusals(client: httpx.AsyncClient, given: dict[str, Any], field: str, says: str) -> None:
    (error,) = problem(await client.post("/api/tasks", json={"input": given}), 422)["errors"]
    assert error["field"] == field
    assert says in error["message"]


async def test_one_stop_may_stand_without_a_list(client: httpx.AsyncClient) -> None:
    task = await submit(client, input={"prompt": "x", "stop": "END"})
    assert (await client.get(f"/api/tasks/{task['task_id']}/input")).json()["stop"] == ["END"]


async def test_what_waits_is_what_is_due(client: httpx.AsyncClient, desk: Desk) -> None:
    await submit(client, run_at=(datetime.now(UTC) + timedelta(days=1)).isoformat())
    stats = (await client.get("/api/stats")).json()
    assert (stats["queue_depth"], stats["queue"], stats["oldest_pending_s"]) == (0, {"ready": 0, "delayed": 1}, None)
    assert stats["states"]["pending"] == 1
    metrics = (await client.get("/metrics")).text
    assert "unbroken_queue_depth 0.0" in metrics
    assert "unbroken_oldest_ready_seconds 0.0" in metrics
    await submit(client, priority="high")
    stats = (await client.get("/api/stats")).json()
    assert (stats["queue_depth"], stats["queue"]) == (1, {"ready": 1, "delayed": 1})
    assert 0 <= stats["oldest_pending_s"] < 600
    assert "unbroken_queue_depth 1.0" in (await client.get("/metrics")).text


async def test_a_mistyped_cursor_does_not_replay_everything(client: httpx.AsyncClient) -> None:
    task = await submit(client)
    for path in (f"/api/tasks/{task['task_id']}/stream?", f"/api/stream?task={task['task_id']}&"):
        for name in ("lasteventid", "last-event-id", "LastEventID"):
            (error,) = problem(await client.get(f"{path}{name}=1-1"), 422)["errors"]
            assert "Did you mean last_event_id?" in error["message"]
        async with client.stream("GET", f"{path}_=1&last_event_id=-1") as answer:
            assert answer.status_code == 200
    problem(await client.get("/api/stats?kind=text"), 422)
    assert "Each is called task." in (await client.get(f"/api/stream?tasks={task['task_id']}")).text


async def test_where_the_text_of_a_cancelled_task_is_is_said(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.write("Half a sto")
    url = f"/api/tasks/{author.task.id}"
    assert "kept" not in problem(await client.get(f"{url}/result"), 409)["detail"]
    await client.post(f"{url}/cancel")
    assert "the task is cancelled. Its text so far is kept" in problem(await client.get(f"{url}/result"), 409)["detail"]


@pytest.mark.parametrize("call", ["recover", "pause", "cancel"])
async def test_a_call_without_fields_refuses_every_field(client: httpx.AsyncClient, desk: Desk, call: str) -> None:
    """And changes nothing then; an empty body, an empty object and no JSON type are all fine."""
    task = await desk.submit(due_ms=4_000_000_000_000)
    path = f"/api/tasks/{task.id}/{call}"
    (error,) = problem(await client.post(path, json={"reason": "x"}), 422)["errors"]
    assert error["field"] == "reason"
    problem(await client.post(path, content=b"[]"), 400)
    assert (await client.get(f"/api/tasks/{task.id}")).json()["state"] == "pending"
    for body in (b"", b"{}"):
        assert (await client.post(path, content=body)).status_code == (409 if call == "recover" else 200)
