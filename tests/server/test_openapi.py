"""The description and the routes are the same thing."""

from __future__ import annotations

import builtins
import json
import re
from pathlib import Path

import httpx
import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict

from tests.server.asking import submit
from tests.server.author import begin
from tests.support.desk import Desk
from unbroken.server.many import parse_vector
from unbroken.server.openapi import document
from unbroken.server.sse import parse_cursor
from unbroken.server.table import ROUTES
from unbroken.tasks.registry import WITHOUT_SCRIPT, Spec


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    routes = {
        (method, re.sub(r":path}", "}", route.path))
        for route in ROUTES
        for method in route.methods or ()
        if method != "HEAD"
    }
    described = {
        (method.upper(), path)
        for path, operations in document()["paths"].items()
        for method in operations
        if method != "parameters"
    }
    pages = {("GET", "/"), ("GET", "/static/{path}"), ("GET", "/favicon.ico")}
    assert described == routes - pages


def test_references_lead_somewhere() -> None:
    text = str(document())
    names = set(re.findall(r"#/components/schemas/([\w.-]+)", text))
    assert names <= document()["components"]["schemas"].keys()


def test_operation_ids_are_unique() -> None:
    ids = [
        op["operationId"] for ops in document()["paths"].values() for name, op in ops.items() if name != "parameters"
    ]
    assert len(ids) == len(set(ids))
    assert not set(ids) & set(dir(builtins)), "clients are made from these names"


async def test_answers_have_the_described_shape(client: httpx.AsyncClient, desk: Desk) -> None:
    served = (await client.get("/api/openapi.json")).json()
    assert served["openapi"].startswith("3.1")

    def fits(value: object, name: str) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": served["components"]}
        jsonschema.Draft202012Validator(schema).validate(value)

    author = await begin(desk)
    await author.write("abc")
    await author.save()
    url = f"/api/tasks/{author.task.id}"
    fits((await client.get(f"{url}/checkpoint")).json(), "Checkpoint")
    await desk.fail(author.held.lease, retryable=False, at=3)
    fits((await client.get(url)).json(), "Task")
    fits((await client.get("/api/dead-letters")).json(), "DeadGroups")
    fits((await client.get("/api/dead-letters", params={"group": "g"})).json(), "DeadGroup")
    fits((await client.post("/api/dead-letters/replay", json={"all": True})).json(), "Replayed")
    fits((await client.post(f"{url}/pause")).json(), "Task")
    fits((await client.post(f"{url}/recover")).json(), "Recovery")
    fits(await submit(client), "Task")
    fits((await client.get("/api/tasks")).json(), "TaskPage")
    fits((await client.get(f"{url}/input")).json(), "Input")
    fits((await client.get("/api/titles", params={"task": author.task.id})).json(), "Titles")
    fits((await client.get("/api/stats")).json(), "Stats")
    fits((await client.get("/api/session")).json(), "Session")
    fits((await client.get("/readyz")).json(), "Ready")
    fits((await client.get("/nope")).json(), "Problem")
    fits((await client.post("/api/tasks", json={})).json(), "Problem")
    fits({"input": {"prompt": "x"}}, "Submit")


class Inner(BaseModel):
    """Called like nothing of ours."""

    depth: int


class Message(BaseModel):
    """Called like something of ours."""

    words: list[Inner]


class Odd:
    """No type that JSON knows."""


def test_kinds_of_the_operator_are_described() -> None:
    class Input(BaseModel):
        model_config = ConfigDict(extra="forbid")
        first: Message

    class Strange(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        odd: Odd

    own = [Spec("my-kind", Input, "steps", lambda _: None), Spec("odd", Strange, "steps", lambda _: None)]
    made = document((*WITHOUT_SCRIPT.values(), *own))
    schema = {"$ref": "#/components/schemas/Submit", "components": made["components"]}
    check = jsonschema.Draft202012Validator(schema)
    check.validate({"kind": "my-kind", "input": {"first": {"words": [{"depth": 1}]}}})
    check.validate({"kind": "odd", "input": {"odd": 1}})
    check.validate({"input": {"messages": [{"role": "user", "content": "x"}]}})
    for wrong in ({"kind": "my-kind", "input": {"x": 1}}, {"input": {"messages": [{"role": "user", "content": " "}]}}):
        assert not check.is_valid(wrong)
    text = str(made)
    assert set(re.findall(r"#/components/schemas/([\w.-]+)", text)) <= made["components"]["schemas"].keys()


async def test_the_data_of_events_has_the_described_shape(client: httpx.AsyncClient, desk: Desk) -> None:
    made = document()
    shapes = made["paths"]["/api/tasks/{task_id}/stream"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    author = await begin(desk)
    await author.write("abc")
    await author.save()
    await author.complete()
    failing = await begin(desk)
    await desk.fail(failing.held.lease, retryable=False)
    seen = set()
    for task in (author.task.id, failing.task.id):
        for block in (await client.get(f"/api/tasks/{task}/stream")).text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" not in fields:
                continue
            seen.add(fields["event"])
            schema = {**shapes["x-events"][fields["event"]], "components": made["components"]}
            jsonschema.Draft202012Validator(schema).validate(json.loads(fields["data"]))
    assert {"status", "chunk", "done", "failed"} <= seen


def test_cursors_are_described_as_they_are_read() -> None:
    paths = document()["paths"]
    one, many = (paths[path]["get"]["parameters"][-1] for path in ("/api/tasks/{task_id}/stream", "/api/stream"))
    for described, reads, good, bad in (
        (one, parse_cursor, ("", "-1", "0-0", "1796018110031-57"), ("x", "1", "01-1", "1-1,", "-2")),
        (many, parse_vector, ("", "-1", "0a1b2c3d:1-12", "0a1b2c3d:1-12,00000000:5-0"), ("1-1", "0a1b2c3d:1-12,")),
    ):
        pattern = described["schema"]["pattern"]
        for given in good:
            assert re.search(pattern, given)
            reads(given)
        for given in bad:
            assert not re.search(pattern, given)
            with pytest.raises(ValueError, match=r"."):
                reads(given)


async def test_described_headers_are_sent(client: httpx.AsyncClient) -> None:
    def described(path: str, method: str, status: int) -> set[str]:
        found = document()["paths"][path][method]["responses"][str(status)]["headers"]
        return {name.lower() for name in found}

    key = {"Idempotency-Key": "k"}
    await client.post("/api/tasks", json={"input": {"prompt": "x"}}, headers=key)
    made = await client.post("/api/tasks", json={"input": {"prompt": "x"}}, headers=key)
    assert {"location", "idempotent-replayed"} == described("/api/tasks", "post", 201) <= made.headers.keys()
    shown = await client.get(made.headers["location"])
    assert {"etag", "retry-after"} == described("/api/tasks/{task_id}", "get", 200) <= shown.headers.keys()


def test_the_module_is_small() -> None:
    """House rule: no module above 400 lines."""
    for path in (Path(__file__).parents[2] / "unbroken" / "server").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
