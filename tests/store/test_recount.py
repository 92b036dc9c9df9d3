"""The recount finds what is off, and mends it from the records (a lost index loses no task)."""

from __future__ import annotations

import pytest

from tests.store.test_parity import bring
from tests.support.desk import Desk
from unbroken.tasks import keys
from unbroken.tasks.audit import check_log, recount
from unbroken.tasks.state import State

INDEXES = [
    "ready", "delayed", "leases", "paused", "dead", "done", "turns", "owners", "ready:local", "leases:local",
    "list:all:local", *(f"list:{state}:local" for state in State), "groups:local", "group:local:g", "audit", "seen",
]  # fmt: skip


async def one_of_each(desk: Desk) -> list[str]:
    made = [(await bring(desk, state)).task_id for state in State if state not in (State.PENDING, State.RECOVERING)]
    made += [(await bring(desk, state)).task_id for state in (State.RECOVERING, State.PENDING)]
    later = await desk.submit(due_ms=1_767_225_600_000 + 60_000)
    return [*made, later.id]


@pytest.mark.parametrize("index", INDEXES)
async def test_a_deleted_index_is_made_again(timed: Desk, index: str) -> None:
    ids = await one_of_each(timed)
    assert (await recount(timed.store)).differences == []
    before = [await timed.dump(task_id) for task_id in ids]
    existed = await timed.redis.delete(keys.key(index))
    assert existed == 1
    if index not in ("audit", "seen", "turns"):  # an owner with a running task may be without a turn
        assert (await recount(timed.store)).differences
    await recount(timed.store, repair=True)
    assert (await recount(timed.store)).differences == []
    assert [await timed.dump(task_id) for task_id in ids] == before
    assert (await timed.claim()) is not None, "work goes on"


async def test_entries_without_a_record_are_taken_out(timed: Desk) -> None:
    ghost = "s0-" + "0" * 26
    for index in ("ready", "delayed", "leases", "paused", "dead", "done"):
        await timed.redis.zadd(keys.key(index), {ghost: 1})
    assert len((await recount(timed.store, repair=True)).differences) == 6
    assert (await recount(timed.store)).differences == []


async def test_a_broken_record_harms_only_its_task(timed: Desk) -> None:
    """G13: a key of a wrong type, a record without fields."""
    torn, wrong = await timed.submit(), await timed.submit()
    await timed.tick(1)
    good = await timed.submit()
    await timed.redis.delete(keys.key("task", torn.id))
    await timed.redis.hset(keys.key("task", torn.id), "state", "pending")
    await timed.redis.delete(keys.key("task", wrong.id))
    await timed.redis.set(keys.key("task", wrong.id), "text")
    assert (await timed.claim()).lease.task_id == good.id
    broken = {raw.decode() for raw in await timed.redis.zrange(keys.key("broken"), 0, -1)}
    assert broken == {torn.id, wrong.id}


async def test_a_log_that_does_not_fold_to_its_text_is_seen(timed: Desk) -> None:
    task = await timed.submit()
    held = await timed.claim()
    await timed.write(held.lease, "abc", at=0, batch=1)
    await timed.complete(held.lease, "abc")
    assert await check_log(timed.store, task.id) == []
    await timed.redis.append(keys.key("text", task.id), "x")
    assert len(await check_log(timed.store, task.id)) == 1
