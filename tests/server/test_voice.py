"""Refusals speak with one voice: which field, and one short sentence that says what to do."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import pytest

from tests.server.asking import problem, submit
from tests.support.desk import Desk
from unbroken.server.openapi import document
from unbroken.server.table import ROUTES

OK = {"prompt": "x"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "input: This field is needed."),
        ({"input": {"promt": "x"}}, "input.promt: There is no such field. Did you mean prompt?"),
        (
            {"input": {"q": "x", "prompt": "y"}},
            "input.q: There is no such field. Known are max_tokens, messages, model",
        ),
        ({"input": OK, "prioritty": "high"}, "prioritty: There is no such field. Did you mean priority?"),
        ({"input": OK, "priority": "urgent"}, "priority: Must be one of 'high', 'normal' or 'low'."),
        ({"input": OK, "topic": "a\nb"}, "topic: Must be one line, without control characters."),
        ({"input": OK, "topic": ""}, "topic: Must not be empty."),
        ({"input": OK, "topic": "x" * 101}, "topic: Must be 100 characters or fewer."),
        ({"input": {"prompt": " "}}, "input.prompt: Must not be blank."),
        ({"input": {"prompt": 5}}, "input.prompt: Must be text."),
        ({"input": {**OK, "max_tokens": "many"}}, "input.max_tokens: Must be a whole number."),
        ({"input": {**OK, "max_tokens": 0}}, "input.max_tokens: Must be 1 or more."),
        ({"input": {**OK, "temperature": 3}}, "input.temperature: Must be 2 or less."),
        ({"input": {**OK, "temperature": None, "stop": 5}}, "input.stop: Must be a list."),
        ({"input": {}}, "input: Give either prompt or messages."),
        ({"input": {"messages": [{"role": "user", "text": "x"}]}}, "input.messages.0.content: This field is needed."),
        ({"input": OK, "run_at": "tomorrow"}, "run_at: Must be a time, such as 2026-01-31T18:00:00Z."),
        ({"input": OK, "run_at": "2026-01-31T18:00"}, "run_at: Needs a time zone, such as 2026-01-31T18:00:00Z."),
        ({"input": OK, "callback": "ftp://x"}, "callback: Must be an address that begins with https:// or http://"),
        ({"input": OK, "kind": "txet"}, "kind: There is no such kind. Known are batch, chain, text."),
        ({"kind": "batch", "input": {"instruction": "x", "items": []}}, "input.items: Must not be empty."),
        ({"kind": "batch", "input": {"instruction": "x", "items": ["a"] * 1_001}}, "input.items: Must be 1000 entries"),
    ],
)
async def test_what_is_said_of_a_body(client: httpx.AsyncClient, body: dict[str, Any], says: str) -> None:
    told = problem(await client.post("/api/tasks", json=body), 422)
    assert told["detail"].startswith(says)
    field, _, message = says.partition(": ")
    assert told["errors"][0]["field"] == field
    assert told["errors"][0]["message"].startswith(message)
    assert not [one for one in told["errors"] if "Input should" in one["message"] or "input is" in one["message"]]


async def test_a_nested_unknown_field_is_compared_with_its_own_neighbours(client: httpx.AsyncClient) -> None:
    body = {"input": {"messages": [{"role": "user", "content": "x", "contnet": "y"}]}}
    told = problem(await client.post("/api/tasks", json=body), 422)
    assert told["detail"] == "input.messages.0.contnet: There is no such field. Did you mean content?"


async def test_several_are_counted(client: httpx.AsyncClient) -> None:
    told = problem(await client.post("/api/tasks", json={"input": OK, "topic": "", "sender": ""}), 422)
    assert told["detail"].endswith("(1 more in errors)")
    assert len(told["errors"]) == 2


async def test_bodies_that_are_none(client: httpx.AsyncClient) -> None:
    header = {"Content-Type": "application/json"}
    empty = problem(await client.post("/api/tasks", headers=header), 400)
    assert empty["detail"] == "The body is empty. Send a JSON object."
    broken = problem(await client.post("/api/tasks", headers=header, content=b'{"input": }'), 400)
    assert broken["detail"] == "The body is not JSON (line 1, column 11)."
    replay = problem(await client.post("/api/dead-letters/replay", json={}), 422)
    assert replay["errors"][0]["field"] == "body"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/tasks?stat=pending", "stat: There is no such parameter. Did you mean state?"),
        ("/api/tasks?q=1", "q: There is no such parameter. Known are cursor, kind, limit"),
        ("/api/tasks?priority=urgent", "priority: Must be one of high, normal, low."),
        ("/api/tasks?state=done", "state: Must be one of pending, processing"),
        ("/api/tasks?state=failed&state=paused", "state: Must be given once."),
        ("/api/tasks?limit=x", "limit: Must be a whole number from 1 to 200."),
        ("/api/dead-letters?grop=x", "grop: There is no such parameter. Did you mean group?"),
        ("/api/titles?task=a&tsk=b", "tsk: There is no such parameter. Did you mean task?"),
    ],
)
async def test_a_query_is_checked(client: httpx.AsyncClient, path: str, says: str) -> None:
    assert problem(await client.get(path), 422)["detail"].startswith(says)


async def test_what_surrounds_a_stream_may_add_to_its_query(client: httpx.AsyncClient, desk: Desk) -> None:
    task = await submit(client)
    await client.post(f"/api/tasks/{task['task_id']}/cancel")
    assert (await client.get(f"/api/tasks/{task['task_id']}/stream?_=123")).status_code == 200


async def test_a_refused_method_names_all_that_there_are(client: httpx.AsyncClient) -> None:
    for route in ROUTES:
        path = route.path.replace("{task_id}", "x").replace("{path:path}", "x")
        answer = await client.request("PATCH", path)
        problem(answer, 405)
        assert set(answer.headers["allow"].split(", ")) == set(route.methods or ()), path
    allowed = (await client.put("/api/tasks")).headers["allow"]
    assert {"GET", "POST", "HEAD"} == set(allowed.split(", "))


async def test_recovering_what_waits_for_its_time_says_when(client: httpx.AsyncClient) -> None:
    later = await submit(client, run_at="2099-01-31T18:00:00Z")
    told = problem(await client.post(f"/api/tasks/{later['task_id']}/recover"), 409)
    assert told["detail"] == "The task has not started yet; it is to start at 2099-01-31T18:00:00.000Z."
    soon = await submit(client)
    told = problem(await client.post(f"/api/tasks/{soon['task_id']}/recover"), 409)
    assert "as soon as a worker is free" in told["detail"]


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("Submit", {"input": {"prompt": "x"}}, True),
        ("Submit", {"input": {"prompt": None, "messages": [{"role": "user", "content": "x"}]}}, True),
        ("Submit", {"input": {}}, False),
        ("Submit", {"kind": "text", "input": {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}}, False),
        ("Submit", {"kind": "batch", "input": {"prompt": "x"}}, False),
        ("Submit", {"kind": "batch", "input": {"instruction": "x", "items": ["a"]}}, True),
        ("Submit", {"kind": "heat", "input": {"size": 64}}, True),
        ("Replay", {}, False),
        ("Replay", {"all": True}, True),
        ("Replay", {"all": True, "group": "g"}, False),
        ("Replay", {"all": None, "group": "g"}, True),
    ],
)
def test_the_schema_has_the_rules_too(name: str, value: Any, fits: bool) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document()["components"]}
    assert jsonschema.Draft202012Validator(schema).is_valid(value) == fits
