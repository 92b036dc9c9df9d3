"""What operators see when something goes wrong quietly: counts that are true, and say why."""

from __future__ import annotations

from functools import partial

import pytest

from tests.inbox.office import Office
from tests.support.api import scripted
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.tasks import keys, overview


@pytest.mark.office(
    workers=1, lease_s=1, kinds="examples.heat", checkpoint_inline_max=1_000, checkpoint_s=0.05,
    objects_url="file:///dev/null/nowhere",
)  # fmt: skip
async def test_checkpoints_that_cannot_be_saved_are_counted_and_the_task_pauses(office: Office) -> None:
    """The object store is broken: three failures in a row, and the task stops rather than run on unprotected."""
    task_id = (await office.api.submit({"size": 100, "steps": 1_000_000}, kind="heat"))["task_id"]
    task = await office.api.until_state(task_id, "paused")
    assert task["reason"] == "checkpoint_failed"
    assert task["warning"].startswith("Checkpoint not saved (3 in a row)")
    text = await office.api.submit(scripted(tokens=10_000, rate=20), recovery="manual")
    await office.api.until_length(text["task_id"], 20)
    office.stack.kill_workers()
    await office.api.until_state(text["task_id"], "paused")
    assert await _number(office, 'unbroken_paused{reason="checkpoint_failed"}') == 1
    assert await _number(office, 'unbroken_paused{reason="worker_lost"}') == 1
    assert await _number(office, 'unbroken_paused{reason="requested"}') == 0
    assert await _number(office, "unbroken_checkpoint_failures_total") == 3
    await office.api.post(task_id, "cancel")
    assert await _number(office, 'unbroken_paused{reason="checkpoint_failed"}') == 0


async def _number(office: Office, name: str) -> float:
    lines = (await office.api.http.get("/metrics")).text.splitlines()
    [line] = [line for line in lines if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


@pytest.mark.office(workers=1, lease_s=0.5)
async def test_leases_as_short_as_allowed_are_taken_back(office: Office) -> None:
    task_id = (await office.api.submit(scripted(tokens=10_000, rate=20)))["task_id"]
    await office.api.until_length(task_id, 20)
    office.stack.kill_workers()
    await office.api.until_state(task_id, "recovering", within=10)


@pytest.mark.office(workers=2, lease_s=0.5)
async def test_workers_alone_take_it_back_too(office: Office) -> None:
    task_id = (await office.api.submit(scripted(tokens=10_000, rate=20)))["task_id"]
    await office.api.until_length(task_id, 20)
    office.stack.servers[0].kill()
    worker = (await office.redis.hget(keys.key("task", task_id), "worker")).decode()
    victim = next(one for one in office.stack.workers if f"-{one.pid}-" in worker)
    victim.kill()
    await until(partial(_other, office, task_id, worker), "the other worker to have it", within=10)


async def _other(office: Office, task_id: str, worker: str) -> bool:
    now = await office.redis.hget(keys.key("task", task_id), "worker")
    return bool(now) and now.decode() != worker


async def test_a_failed_save_is_counted_once_however_often_it_is_told(office: Office) -> None:
    office.stack.kill_workers()
    desk = Desk(office.redis, office.store.settings)
    await desk.submit()
    held = await desk.claim()
    for unsaved in (1, 1, 3, 3, 2):
        await desk.holder().warn(held.lease, "no room", unsaved=unsaved)
    assert (await overview.totals(office.store))["counters"] == {"checkpoint_failures": 3}
    await desk.holder().warn(held.lease, "")
    assert (await overview.totals(office.store))["counters"] == {"checkpoint_failures": 3}
    await desk.fail(held.lease, retryable=True)
    again = await desk.claim()
    await desk.holder().warn(again.lease, "no room", unsaved=1)
    assert (await overview.totals(office.store))["counters"] == {"checkpoint_failures": 4}, "another lease counts anew"
