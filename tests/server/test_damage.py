"""One damaged record, by a bad disk or by hand: it harms only its own task, and never a list, a page or a loop."""

from __future__ import annotations

import httpx
import pytest

from tests.server.asking import problem, submit
from tests.server.author import begin
from tests.server.site import Site, watching
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.tasks import keys

DAMAGE = [
    ("retry_at", "9e999"), ("created", "x"), ("finished", "9e17"), ("progress", "nan"), ("progress", "x"),
    ("error", '{"a":NaN}'), ("error", "{"), ("error", "[1]"), ("total", "x"), ("attempts", "\xff"), ("state", "\0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), DAMAGE)
async def test_lists_go_on(client: httpx.AsyncClient, desk: Desk, name: str, value: str) -> None:
    failed = []
    for _ in range(2):
        failed.append((await submit(client))["task_id"])
        await desk.fail((await desk.claim()).lease, retryable=False)
    bad, good = failed
    await desk.redis.hset(keys.key("task", bad), name, value)
    listed = (await client.get("/api/tasks")).json()["items"]
    assert good in [task["task_id"] for task in listed]
    (group,) = (await client.get("/api/dead-letters")).json()["groups"]
    assert good in group["examples"]
    letters = (await client.get("/api/dead-letters", params={"group": group["group"]})).json()["items"]
    assert good in [task["task_id"] for task in letters]
    assert (await client.get("/api/stats")).status_code == 200
    for path in ("/api/tasks", "/api/dead-letters"):
        assert "NaN" not in (await client.get(path)).text


async def test_a_damaged_dead_letter_does_not_hold_back_the_others(client: httpx.AsyncClient, desk: Desk) -> None:
    failed = []
    for _ in range(3):
        failed.append((await submit(client))["task_id"])
        await desk.fail((await desk.claim()).lease, retryable=False)
    await desk.redis.hset(keys.key("task", failed[1]), "generation", "x")
    answer = (await client.post("/api/dead-letters/replay", json={"task_ids": failed})).json()
    assert answer["task_ids"] == [failed[0], failed[2]]
    assert list(answer["refused"]) == [failed[1]]


async def test_the_viewers_of_others_go_on(client: httpx.AsyncClient, desk: Desk, site: Site) -> None:
    """The hub compares all watched tasks with their records in one go."""
    sound, numbers, kind = [await begin(desk) for _ in range(3)]
    async with (
        watching(client, sound.task.id) as reading,
        watching(client, numbers.task.id) as one,
        watching(client, kind.task.id) as two,
    ):
        for each in (reading, one, two):
            await each.until(b"processing")
        await desk.redis.hset(keys.key("task", numbers.task.id), "epoch", "x")
        await desk.redis.delete(keys.key("task", kind.task.id))
        await desk.redis.set(keys.key("task", kind.task.id), "no hash")
        before = site.services.hub.checked

        async def compared() -> bool:
            await desk.beat(sound.held.lease)
            return site.services.hub.checked > before

        await until(compared, "the hub to have compared them all", within=20)
        await sound.write("still here")
        await reading.until(b"still here")
    problem(await client.get(f"/api/tasks/{kind.task.id}"), 404)
