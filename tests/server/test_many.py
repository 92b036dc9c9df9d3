"""Several tasks on one connection."""

from __future__ import annotations

import httpx
import pytest

from tests.server.asking import problem
from tests.server.author import begin
from tests.server.site import Reading, Site, View
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.server.many import mark, parse_vector


def views(raw: bytes, known: dict[str, View] | None = None) -> tuple[dict[str, View], list[str]]:
    """Fold each task apart; also all ids."""
    import json

    from tests.server.site import Frame

    found = known or {}
    ids = []
    for block in raw.split(b"\n\n")[:-1]:
        lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
        if b"id" not in lines:
            continue
        data = json.loads(lines[b"data"])
        ids.append(lines[b"id"].decode())
        own = parse_vector(ids[-1])[mark(data["task_id"])]
        view = found.setdefault(data["task_id"], View())
        view.take(Frame(str(own), lines[b"event"].decode(), data, block))
    return found, ids


async def test_two_tasks_and_resume_at_every_vector(client: httpx.AsyncClient, desk: Desk) -> None:
    one, two = await begin(desk), await begin(desk)
    url = f"/api/stream?task={one.task.id}&task={two.task.id}"
    async with client.stream("GET", url) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        reading = Reading(response)
        for at in range(20):
            await one.write(f"a{at} ")
            await two.write(f"\n\nid: {at} ")
            await reading.until(b"a%d " % at)
        await one.complete()
        await two.complete()
        raw = await reading.rest()
    found, ids = views(raw)
    assert {task_id: (view.text, view.end) for task_id, view in found.items()} == {
        one.task.id: (one.text, "done"),
        two.task.id: (two.text, "done"),
    }
    for at in range(0, len(ids), 3):
        cut = raw.index(b"\n\n", raw.index(b"id: " + ids[at].encode() + b"\n")) + 2
        before, _ = views(raw[:cut])
        answer = await client.get(url, headers={"Last-Event-ID": ids[at]})
        after, _ = views(answer.content, before)
        assert {view.text for view in after.values()} == {one.text, two.text}, at
    ended = await client.get(url, headers={"Last-Event-ID": ids[-1]})
    assert (ended.status_code, ended.content) == (204, b"")


async def test_the_cursor_serves_other_sets_of_tasks(client: httpx.AsyncClient, desk: Desk) -> None:
    one, two, three = await begin(desk), await begin(desk), await begin(desk)
    for author in (one, two, three):
        await author.write(f"text of {author.task.id}")
        await author.complete()
    answer = await client.get(f"/api/stream?task={one.task.id}&task={two.task.id}")
    _, ids = views(answer.content)
    more = await client.get(f"/api/stream?task={three.task.id}&task={one.task.id}", headers={"Last-Event-ID": ids[-1]})
    found, _ = views(more.content)
    assert [(task_id, view.text) for task_id, view in found.items()] == [(three.task.id, three.text)]
    fewer = await client.get(f"/api/stream?task={one.task.id}", headers={"Last-Event-ID": ids[-1]})
    assert fewer.status_code == 204


@pytest.mark.parametrize("cursor", ["abc", "1-1", "0a1b2c3d:1-1,", "0a1b2c3d:01-1", "x" * 70_000])
async def test_malformed_vectors(client: httpx.AsyncClient, desk: Desk, cursor: str) -> None:
    task = await desk.submit()
    answer = await client.get("/api/stream", params={"task": task.id}, headers={"Last-Event-ID": cursor[:60_000]})
    problem(answer, 400)


async def test_how_many(client: httpx.AsyncClient, desk: Desk, site: Site) -> None:
    problem(await client.get("/api/stream"), 400)
    limit = site.services.settings.streams_tasks_max
    problem(await client.get("/api/stream", params={"task": [f"t{at}" for at in range(limit + 1)]}), 400)
    tasks = [await desk.submit() for _ in range(limit)]
    async with client.stream("GET", "/api/stream", params={"task": [task.id for task in tasks]}) as response:
        reading = Reading(response)
        await reading.until(tasks[-1].id.encode())
    await until(lambda: not site.services.hub.topics, "all topics to be gone")
