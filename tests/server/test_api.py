"""Every answer of section 4, word for word where the contract has words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.server.site import parse, running, watching
from tests.server.test_streams import begin
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.tasks import codec, keys
from unbroken.tasks.lease import Last
from unbroken.tasks.settings import Settings

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


# create


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


# results


async def test_result_as_text_json_and_in_parts(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    url = f"/api/tasks/{author.task.id}/result"
    assert problem(await client.get(url), 409)["state"] == "processing"
    text = "Grüße, 世界 🙂\r\n<b>"
    await author.write(text)
    await author.complete()
    answer = await client.get(url)
    assert (answer.content, answer.headers["content-type"]) == (text.encode(), "text/plain; charset=utf-8")
    assert answer.headers["x-content-type-options"] == "nosniff"
    as_json = await client.get(url, headers={"Accept": "application/json"})
    assert as_json.json()["text"] == text
    for accept in ("text/html, */*;q=0.1", "text/plain, application/json;q=0.5", "nonsense;;q=x"):
        assert (await client.get(url, headers={"Accept": accept})).content == text.encode()
    raw = text.encode()
    for given, expected in (
        ("bytes=0-3", raw[:4]),
        ("bytes=5-", raw[5:]),
        ("bytes=-4", raw[-4:]),
        ("bytes=2-999", raw[2:]),
    ):
        part = await client.get(url, headers={"Range": given})
        assert (part.status_code, part.content) == (206, expected)
        assert part.headers["content-range"].endswith(f"/{len(raw)}")
    problem(await client.get(url, headers={"Range": "bytes=999-"}), 416)
    for given in ("bytes=0-1,3-4", "items=0-1", "bytes=-", "bytes=a-b"):
        assert (await client.get(url, headers={"Range": given})).status_code == 200
    etag = answer.headers["etag"]
    assert (await client.get(url, headers={"If-None-Match": etag})).status_code == 304
    stale = await client.get(url, headers={"Range": "bytes=0-3", "If-Range": '"old"'})
    assert stale.status_code == 200
    assert (await client.head(url)).headers["content-length"] == str(len(raw))


async def test_a_batch_result_is_json(client: httpx.AsyncClient, desk: Desk) -> None:
    body = {"kind": "batch", "input": {"instruction": "x", "items": ["a", "b"]}}
    task = (await client.post("/api/tasks", json=body)).json()
    assert (task["unit"], task["total"]) == ("items", 2)
    held = await desk.claim()
    for index, data in (
        (1, b'{"index":1,"ok":false,"error":{"code":"x"}}'),
        (0, b'{"index":0,"ok":true,"result":"A"}'),
    ):
        await desk.holder().item(held.lease, index, data, 2)
    await desk.complete(held.lease, "")
    answer = await client.get(f"/api/tasks/{task['task_id']}/result", headers={"Accept": "text/plain"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "items": [{"index": 0, "ok": True, "result": "A"}, {"index": 1, "ok": False, "error": {"code": "x"}}]
    }


async def test_after_retention_it_is_gone(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.complete()
    await desk.redis.zadd(keys.key("done"), {author.task.id: 1})
    await desk.store.sweep()
    assert problem(await client.get(f"/api/tasks/{author.task.id}/result"), 410)["state"] == "completed"
    problem(await client.get(f"/api/tasks/{author.task.id}/stream"), 410)
    assert (await client.get(f"/api/tasks/{author.task.id}")).json()["state"] == "completed"


async def test_rendered_is_safe_html(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.write("# Tïtle\n<script>alert(1)</script> **b** [x](javascript:alert(1)) ![y](http://evil/z.png)")
    url = f"/api/tasks/{author.task.id}/rendered"
    answer = await client.get(url)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<h1>Tïtle</h1>" in answer.text
    assert "<strong>b</strong>" in answer.text
    for bad in ("<script", 'javascript:alert(1)"', "<img"):
        assert bad not in answer.text
    part = await client.get(url, params={"from": 2, "to": 7})
    assert part.text == "<p>Tïtle</p>\n"
    problem(await client.get(url, params={"from": 5, "to": 1}), 422)
    problem(await client.get(url, params={"from": -1}), 422)


# what moves a task


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


# everything else


async def test_unknown_addresses_and_methods(client: httpx.AsyncClient) -> None:
    for path in ("/nope", "/api/nope", "/api/tasks/x/y", "/static/nope.js", "/api/tasks/", "/static/../pyproject.toml"):
        problem(await client.get(path), 404)
    problem(await client.get("/static/%2e%2e/server/app.py"), 404)
    problem(await client.get("/static/%00"), 404)
    wrong = await client.put("/api/tasks")
    problem(wrong, 405)
    assert "allow" in wrong.headers


UNKNOWN = ["x", "s0-", "s0-" + "0" * 26, "s0-" + "0" * 26 + "%0A", "%F0%9F%99%82", "a" * 5000]
CALLS = [("GET", ""), ("DELETE", ""), ("GET", "/stream"), ("GET", "/result"), ("GET", "/rendered")]
CALLS += [("GET", "/checkpoint"), ("POST", "/recover"), ("POST", "/pause"), ("POST", "/cancel")]


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
