"""Results: as text, as JSON, in parts, rendered, and gone after retention."""

from __future__ import annotations

import httpx
import pytest

from tests.server.asking import problem
from tests.server.author import begin
from tests.server.site import Site
from tests.support.desk import Desk
from unbroken.tasks import keys
from unbroken.tasks.record import Task


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


@pytest.mark.parametrize(("kind", "path"), [("text", "result"), ("text", "rendered"), ("batch", "result")])
@pytest.mark.parametrize(("how", "status"), [("deleted", 404), ("swept", 410)])
async def test_what_goes_while_it_is_asked_for_is_no_empty_result(
    client: httpx.AsyncClient, desk: Desk, site: Site, monkeypatch: pytest.MonkeyPatch,
    path: str, how: str, status: int, kind: str,
) -> None:  # fmt: skip
    """The record was read, then the rest was removed."""
    task_id = await _finished(client, desk, kind)
    store = site.services.store
    read, first = store.get, [True]

    async def get(asked: str, owner: str | None) -> Task:
        task = await read(asked, owner)
        if first:
            first.clear()
            if how == "deleted":
                await store.purge(task_id, "local", actor="a")
            else:
                await store.redis.zadd(keys.key("done"), {task_id: 1})
                await store.sweep()
        return task

    monkeypatch.setattr(store, "get", get)
    answer = await client.get(f"/api/tasks/{task_id}/{path}")
    problem(answer, status)
    assert "etag" not in answer.headers


async def _finished(client: httpx.AsyncClient, desk: Desk, kind: str) -> str:
    if kind == "text":
        author = await begin(desk)
        await author.write("text")
        await author.complete()
        return author.task.id
    body = {"kind": "batch", "input": {"instruction": "x", "items": ["a"]}}
    task = (await client.post("/api/tasks", json=body)).json()
    held = await desk.claim()
    await desk.holder().item(held.lease, 0, b'{"index":0,"ok":true,"result":"A"}', 1)
    await desk.complete(held.lease, "")
    return str(task["task_id"])


async def test_an_empty_result_is_one(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.complete()
    for path in ("result", "rendered"):
        answer = await client.get(f"/api/tasks/{author.task.id}/{path}")
        assert (answer.status_code, answer.content) == (200, b"")
