"""The description and the routes are the same thing."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import jsonschema

from tests.server.asking import submit
from tests.server.author import begin
from tests.support.desk import Desk
from unbroken.server.openapi import document
from unbroken.server.table import ROUTES


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
    names = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert names <= document()["components"]["schemas"].keys()


def test_operation_ids_are_unique() -> None:
    ids = [
        op["operationId"] for ops in document()["paths"].values() for name, op in ops.items() if name != "parameters"
    ]
    assert len(ids) == len(set(ids))


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


def test_the_module_is_small() -> None:
    """House rule: no module above 400 lines."""
    for path in (Path(__file__).parents[2] / "unbroken" / "server").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
