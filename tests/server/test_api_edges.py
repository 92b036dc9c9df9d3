"""Addresses, methods and tasks that are not there, errors, limits, start and end."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.server.asking import CALLS, GOOD, UNKNOWN, problem, submit
from tests.server.author import begin
from tests.server.site import parse, running, watching
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.tasks import keys
from unbroken.tasks.settings import Settings


async def test_unknown_addresses_and_methods(client: httpx.AsyncClient) -> None:
    for path in ("/nope", "/api/nope", "/api/tasks/x/y", "/static/nope.js", "/api/tasks/", "/static/../pyproject.toml"):
        problem(await client.get(path), 404)
    problem(await client.get("/static/%2e%2e/server/app.py"), 404)
    problem(await client.get("/static/%00"), 404)
    wrong = await client.put("/api/tasks")
    problem(wrong, 405)
    assert "allow" in wrong.headers


@pytest.mark.parametrize("task_id", UNKNOWN)
async def test_unknown_tasks_look_the_same_everywhere(client: httpx.AsyncClient, task_id: str) -> None:
    bodies = set()
    for method, tail in CALLS:
        answer = await client.request(method, f"/api/tasks/{task_id}{tail}")
        problem(answer, 404)
        bodies.add(answer.text)
    answer = await client.get(f"/api/stream?task={task_id}")
    assert bodies == {answer.text}


async def test_an_unexpected_error_has_an_incident_id_and_no_more(
    client: httpx.AsyncClient, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    task = await submit(client)
    await desk.redis.hset(keys.key("task", task["task_id"]), "error", "not json: secret")
    body = problem(await client.get(f"/api/tasks/{task['task_id']}"), 500)
    assert "secret" not in json.dumps(body)
    assert any(body["incident"] in record.getMessage() for record in caplog.records)


async def test_the_page_and_its_headers(client: httpx.AsyncClient) -> None:
    page = await client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    script = await client.get("/static/stream.js")
    assert script.headers["content-type"].startswith("text/javascript")
    again = await client.get("/static/stream.js", headers={"If-None-Match": script.headers["etag"]})
    assert again.status_code == 304


async def test_submits_are_limited_per_owner(desk: Desk, settings: Settings) -> None:

    with running(settings.model_copy(update={"submits_per_minute": 3})) as site:
        async with httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
            for _ in range(3):
                await submit(client)
            refused = await client.post("/api/tasks", json=GOOD)
            problem(refused, 429)
            assert 1 <= int(refused.headers["retry-after"]) <= 60


async def test_only_new_tasks_count_towards_the_limit(desk: Desk, settings: Settings) -> None:
    """Neither what is refused nor a repeat of what was accepted; a key whose task was deleted makes a new one."""
    with running(settings.model_copy(update={"submits_per_minute": 3})) as site:
        async with httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
            for _ in range(4):
                problem(await client.post("/api/tasks", json=GOOD | {"priority": "x"}), 422)
            first = await client.post("/api/tasks", json=GOOD, headers={"Idempotency-Key": "a"})
            for _ in range(2):
                await submit(client)
            problem(await client.post("/api/tasks", json=GOOD, headers={"Idempotency-Key": "b"}), 429)
            again = await client.post("/api/tasks", json=GOOD, headers={"Idempotency-Key": "a"})
            assert (again.status_code, again.json()) == (201, first.json())
            assert again.headers["idempotent-replayed"] == "true"
            other = {"input": {"prompt": "Other"}}
            problem(await client.post("/api/tasks", json=other, headers={"Idempotency-Key": "a"}), 422)
            url = first.json()["links"]["self"]
            await client.post(f"{url}/cancel")
            assert (await client.delete(url)).status_code == 204
            problem(await client.post("/api/tasks", json=GOOD, headers={"Idempotency-Key": "a"}), 429)


async def test_streams_are_limited_per_owner(desk: Desk, settings: Settings) -> None:

    with running(settings.model_copy(update={"streams_per_owner": 2})) as site:
        async with httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
            task = await submit(client)
            async with watching(client, task["task_id"]) as one, watching(client, task["task_id"]) as two:
                await one.more()
                await two.more()
                refused = await client.get(f"/api/tasks/{task['task_id']}/stream")
                problem(refused, 429)
                assert refused.headers["retry-after"]
            await until(lambda: not site.services.streams.open, "the streams to be counted out")
            async with watching(client, task["task_id"]) as three:
                await three.more()


async def test_starts_three_times_in_one_process(desk: Desk, settings: Settings) -> None:

    task = await desk.submit()
    for _ in range(3):
        with running(settings) as site:
            client = httpx.AsyncClient(base_url=site.url, trust_env=False)
            async with client, watching(client, task.id) as reading:
                await reading.until(b"pending")


async def test_shutdown_closes_streams_and_loses_nothing(desk: Desk, settings: Settings) -> None:

    author = await begin(desk)
    await author.write("abc")
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        with running(settings) as site:
            client.base_url = httpx.URL(site.url)
            async with watching(client, author.task.id) as reading:
                await reading.until(b"abc")
                site.services.stop()
                cursor = parse(await reading.rest())[-1].id
        await author.complete()
        with running(settings) as site:
            client.base_url = httpx.URL(site.url)
            async with watching(client, author.task.id, cursor) as reading:
                assert [frame.name for frame in parse(await reading.rest())] == ["done"]
