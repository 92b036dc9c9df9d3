"""What tests of the HTTP API ask, and what every refusal has to look like."""

from __future__ import annotations

from typing import Any

import httpx

UNKNOWN = ["x", "s0-", "s0-" + "0" * 26, "s0-" + "0" * 26 + "%0A", "%F0%9F%99%82", "a" * 5000]
CALLS = [("GET", ""), ("DELETE", ""), ("GET", "/stream"), ("GET", "/result"), ("GET", "/rendered")]
CALLS += [("GET", "/checkpoint"), ("POST", "/recover"), ("POST", "/pause"), ("POST", "/cancel")]
GOOD = {"input": {"prompt": "Hello"}}


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Insist on a problem document."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail"} <= body.keys()
    assert body["status"] == status
    assert "Traceback" not in answer.text
    return body


async def submit(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    """A task."""
    answer = await client.post("/api/tasks", json=GOOD | more)
    assert answer.status_code == 201, answer.text
    task: dict[str, Any] = answer.json()
    return task
