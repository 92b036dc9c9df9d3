"""What goes in: once, and only when it is right."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.api import scripted
from tests.support.processes import Stack

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ids(shared: Stack) -> list[str]:
    """All tasks there are."""
    page = (await shared.api.http.get("/api/tasks", params={"limit": 200})).json()
    return [task["task_id"] for task in page["items"]]


async def test_the_same_key_makes_one_task(shared: Stack) -> None:
    body = {"kind": "text", "input": scripted(tokens=20)}
    before = await ids(shared)
    headers = {"Idempotency-Key": "order-4711"}
    first = await shared.api.http.post("/api/tasks", json=body, headers=headers)
    assert first.status_code == 201
    assert first.headers["location"].endswith(first.json()["task_id"])
    again = await shared.api.http.post("/api/tasks", json=body, headers=headers)
    assert again.headers["idempotent-replayed"] == "true"
    assert (again.status_code, again.content) == (first.status_code, first.content)
    other = await shared.api.http.post(
        "/api/tasks", json={"kind": "text", "input": scripted(tokens=21)}, headers=headers
    )
    assert other.status_code == 422
    assert len(await ids(shared)) == len(before) + 1


async def test_many_at_once_with_the_same_key_make_one_task(shared: Stack) -> None:
    body = {"kind": "text", "input": scripted(tokens=20)}
    before = await ids(shared)
    answers = await asyncio.gather(
        *(shared.api.http.post("/api/tasks", json=body, headers={"Idempotency-Key": "storm"}) for _ in range(30))
    )
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["task_id"] for answer in answers if answer.status_code == 201}) == 1
    assert len(await ids(shared)) == len(before) + 1


TEXT: dict[str, Any] = {"prompt": "Hi"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "nonsense", "input": TEXT}, 422),
        ({"kind": "text", "input": {"prompt": ""}}, 422),
        ({"kind": "text", "input": {"prompt": "  \n"}}, 422),
        ({"kind": "text", "input": {"prompt": 5}}, 422),
        ({"kind": "text", "input": "Hi"}, 422),
        ({"kind": "text", "input": {}}, 422),
        ({"kind": "text"}, 422),
        ({"kind": "text", "input": {"prompt": "Hi", "promt": "Hi"}}, 422),
        ({"kind": "text", "input": TEXT, "priorty": "high"}, 422),
        ({"kind": "text", "input": TEXT, "priority": "urgent"}, 422),
        ({"kind": "text", "input": TEXT, "max_attempts": 0}, 422),
        ({"kind": "text", "input": TEXT, "max_attempts": "3"}, 422),
        ({"kind": "batch", "input": {"instruction": "x", "items": []}}, 422),
        ({"kind": "chain", "input": {"steps": [{"name": "a"}]}}, 422),
        ([], 400),
    ],
)
async def test_what_is_wrong_is_refused_and_nothing_is_stored(shared: Stack, body: object, status: int) -> None:
    before = await ids(shared)
    answer = await shared.api.http.post("/api/tasks", json=body)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem = answer.json()
    assert {"type", "title", "status", "detail"} <= set(problem)
    assert problem["status"] == status
    assert await ids(shared) == before


async def test_what_is_no_json_or_too_large_is_refused(shared: Stack) -> None:
    before = await ids(shared)
    broken = await shared.api.http.post("/api/tasks", content=b"{", headers={"Content-Type": "application/json"})
    assert broken.status_code == 400
    large = await shared.api.http.post("/api/tasks", json={"kind": "text", "input": {"prompt": "x" * (5 << 20)}})
    assert large.status_code == 413
    assert await ids(shared) == before


@pytest.mark.parametrize("unknown", ["s0-00000000000000000000000000", "nonsense", "..%2f..", "s0-%00"])
async def test_an_unknown_id_is_not_found_everywhere(shared: Stack, unknown: str) -> None:
    for method, path in (
        ("GET", ""),
        ("GET", "/stream"),
        ("GET", "/result"),
        ("GET", "/checkpoint"),
        ("POST", "/recover"),
        ("POST", "/pause"),
        ("POST", "/cancel"),
        ("DELETE", ""),
    ):
        answer = await shared.api.http.request(method, f"/api/tasks/{unknown}{path}")
        assert answer.status_code == 404, f"{method} {path}: {answer.text}"
        assert answer.headers["content-type"].startswith("application/problem+json")
