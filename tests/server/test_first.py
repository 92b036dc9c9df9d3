"""One task over HTTP, from submit to its end; read this first."""

from __future__ import annotations

import httpx

from tests.server.site import View, parse, watching, whole
from tests.support.desk import Desk


async def test_submit_watch_and_finish(client: httpx.AsyncClient, desk: Desk) -> None:
    answer = await client.post("/api/tasks", json={"input": {"prompt": "Hello"}})
    assert answer.status_code == 201, answer.text
    task = answer.json()
    assert answer.headers["location"] == f"/api/tasks/{task['task_id']}"
    assert task["state"] == "pending"

    async with watching(client, task["task_id"]) as reading:
        await reading.until(b"pending")
        held = await desk.claim()
        await desk.write(held.lease, "Hello ", at=0, batch=1)
        await reading.until(b"Hello ")
        await desk.write(held.lease, "wörld", at=6, batch=2)
        await desk.complete(held.lease, "Hello wörld")
        raw = await reading.rest()

    view = View().take_all(raw)
    assert (view.text, view.end) == ("Hello wörld", "done")
    assert [frame.n for frame in parse(raw)] == [1, 2, 3, 4, 5]
    shown = (await client.get(f"/api/tasks/{task['task_id']}")).json()
    assert (shown["state"], shown["length"]) == ("completed", 11)
    late = View().take_all(await whole(client, task["task_id"]))
    assert (late.text, late.end, late.last) == (view.text, view.end, view.last)
    assert await whole(client, task["task_id"], late.last) == b""
