"""What runs beside the requests: it notices, survives, and says when it last worked."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest

from tests.server.author import begin
from tests.server.site import Site, running
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.server import loops, records
from unbroken.server.loops import Mender, Repeating, Sweeper
from unbroken.server.records import Records
from unbroken.tasks import keys
from unbroken.tasks.errors import NotFound, StoreUnavailable
from unbroken.tasks.settings import Settings


async def test_a_lost_worker_is_noticed_without_any_other_worker(client: httpx.AsyncClient, desk: Desk) -> None:
    """G8: nobody claims; the server's reaper alone moves the task on."""
    author = await begin(desk)
    await until(lambda: _state(client, author.task.id, "recovering"), "the lease to be taken back", within=15)


async def _state(client: httpx.AsyncClient, task_id: str, state: str) -> bool:
    return bool((await client.get(f"/api/tasks/{task_id}")).json()["state"] == state)


async def test_a_deleted_index_is_made_again(desk: Desk, site: Site) -> None:
    task = await desk.submit()
    await desk.redis.delete(keys.key("ready"), keys.key("ready", "local"), keys.key("turns"))
    future = asyncio.run_coroutine_threadsafe(Mender(site.services).step(), site.services.loop)
    assert await asyncio.wrap_future(future) is False
    assert (await desk.claim()).lease.task_id == task.id


async def test_a_task_that_is_deleted_while_it_is_archived_leaves_nothing(
    desk: Desk, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload is under way when the owner deletes the task: what arrives afterwards is taken away again."""
    short = settings.model_copy(update={"archive": True, "result_s": 0.1})
    author = await begin(Desk(desk.redis, short))
    await author.write("a private text")
    await author.complete()
    uploaded = []
    with running(short) as site:
        services, upload = site.services, site.services.objects.archive

        async def overtaken(owner: str, task_id: str, *rest: Any) -> None:
            await services.store.purge(task_id, owner, actor="me")
            await upload(owner, task_id, *rest)
            uploaded.append(task_id)

        monkeypatch.setattr(services.objects, "archive", overtaken)
        sweeper = Sweeper(services)

        async def step() -> bool:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sweeper.step(), services.loop))
            return bool(uploaded)

        await until(step, "the result to be due and archived")
        async with httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
            assert (await client.get(f"/api/tasks/{author.task.id}/result")).status_code == 404


async def test_who_asks_in_the_moment_a_reader_ends_is_answered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is answered asks again at once, before the reader's task is over."""
    monkeypatch.setattr(records, "READERS", 1)
    task, shared = await desk.submit(), Records(desk.store)
    async with asyncio.timeout(20):
        for _ in range(3):
            assert (await shared.get(task.id, "local")).id == task.id


async def test_a_loop_survives_everything_and_logs_an_outage_once(
    desk: Desk, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    class Unlucky(Repeating):
        name = "unlucky"
        every_s = 0.01
        steps = 0

        async def step(self) -> bool:
            self.steps += 1
            if self.steps <= 3:
                raise StoreUnavailable("away")
            if self.steps == 5:
                raise RuntimeError("a mistake")
            return False

    with running(settings) as site:
        loop = Unlucky(site.services)
        caplog.set_level(logging.INFO)
        task = asyncio.create_task(loop.run())
        await until(lambda: loop.steps >= 8, "it to go on")
        task.cancel()
    said = [record.getMessage() for record in caplog.records if record.name == "unbroken.loops"]
    assert [line for line in said if "unlucky" in line] == [
        "unlucky: away",
        "unlucky: works again after 3 failures",
        "unlucky: unexpected error",
        "unlucky: works again after 1 failures",
    ]
    assert loop.finished > 0


async def test_many_readers_share_few_reads(desk: Desk) -> None:
    tasks = [await desk.submit() for _ in range(20)]
    reads: list[int] = []

    class Counting(Records):
        async def _read(self) -> None:
            reads.append(1)
            await super()._read()

    records = Counting(desk.store)
    found = await asyncio.gather(*(records.get(tasks[at % 20].id, "local") for at in range(500)))
    assert [task.id for task in found] == [tasks[at % 20].id for at in range(500)]
    assert len(reads) <= 2
    for task_id, owner in ((tasks[0].id, "eve"), ("nonsense", "local"), ("s0-" + "0" * 26, "local")):
        with pytest.raises(NotFound):
            await records.get(task_id, owner)


async def test_every_loop_runs(site: Site, client: httpx.AsyncClient) -> None:
    """One that was written and never started would be missed by nobody."""
    names = {loop.name for loop in vars(loops).values() if isinstance(loop, type) and issubclass(loop, Repeating)}
    running = {loop.name for loop in site.services.loops}
    assert running == (names - {Repeating.name}) | {"callbacks", "doorkeeper"}
    assert running <= set((await client.get("/readyz")).json()["checks"])
