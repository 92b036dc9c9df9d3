"""Whose turn it is: priorities that nobody starves under, owners who take turns, and times to come."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.inbox.office import Office
from tests.support.api import Api, scripted
from tests.support.wait import until
from unbroken.tasks import keys
from unbroken.tasks.access import create_key
from unbroken.tasks.submit import NewTask

HEAD_START_S = 0.75


@pytest.mark.office(workers=1, concurrency=1, head_start_s=HEAD_START_S)
async def test_a_low_task_has_its_turn_while_high_ones_keep_coming(office: Office) -> None:
    """High stands one head start before normal and low one behind it: so low goes before every high task that came
    two head starts after it, and after those that came sooner. True at any speed, since it is about the order."""
    busy = scripted(tokens=2, rate=50)
    low = (await office.api.submit(busy, priority="low"))["task_id"]
    feeding = asyncio.create_task(_feed(office, busy))
    try:
        await until(lambda: _claimed(office, low), "the low task to be claimed", within=60)
    finally:
        feeding.cancel()
    created = {move.task: move.at for move in await office.moves(op="create")}
    order = [move.task for move in await office.moves(op="claim")]
    before = [created[task] - created[low] for task in order[: order.index(low)] if task != low]
    assert len(before) > 5, "high ones that came later went first"
    assert max(before) <= 2_000 * HEAD_START_S, "but not for longer than the head start"
    assert len(created) > len(order), "there were always more of them waiting"


async def _feed(office: Office, data: dict[str, object]) -> None:
    """Never fewer than ten high tasks are waiting."""
    while True:
        if await office.redis.zcard(keys.key("ready")) < 10:
            await office.submit_many(10, data, priority="high")
        await asyncio.sleep(0.01)


async def _claimed(office: Office, task_id: str) -> bool:
    return any(move.task == task_id for move in await office.moves(op="claim"))


@pytest.mark.office(workers=0, concurrency=1)
async def test_five_thousand_of_one_owner_do_not_keep_another_waiting(office: Office) -> None:
    crowd = NewTask(owner="crowd", kind="text", input=scripted(tokens=1, rate=20), unit="tokens", total=1)
    for _ in range(100):
        await asyncio.gather(*(office.store.create(crowd, actor="crowd") for _ in range(50)))
    assert await office.redis.zcard(keys.key("ready")) == 5_000
    _, secret = await create_key(office.store, "one")
    api = Api(office.stack.url, key=secret)
    try:
        await office.stack.start_worker()
        await until(lambda: _claims(office, 3), "the crowd's tasks to be under way")
        task_id = (await api.submit(scripted(tokens=1)))["task_id"]
        await api.until_state(task_id, "completed")
    finally:
        await api.close()
    trail = await office.moves()
    submitted = next(n for n, move in enumerate(trail) if move.task == task_id)
    claims = [move.task for move in trail[submitted:] if move.op == "claim"]
    assert claims.index(task_id) < 3, "it starts within three claims"


async def _claims(office: Office, count: int) -> bool:
    return len(await office.moves(owner="crowd", op="claim")) >= count


async def test_a_task_for_later_waits_for_its_time_and_delays_nobody(office: Office) -> None:
    server_now = await office.store.time_ms() / 1_000
    due = datetime.fromtimestamp(server_now, UTC) + timedelta(seconds=2)
    later = await office.api.submit(scripted(tokens=5), priority="high", run_at=due.isoformat())
    assert later["state"] == "pending"
    assert abs(datetime.fromisoformat(later["retry_at"]) - due) < timedelta(seconds=0.001), "it says when"
    now = await office.api.submit(scripted(tokens=5), priority="low")
    await office.api.until_state(later["task_id"], "completed")
    claims = await office.moves(op="claim")
    assert [claim.task for claim in claims] == [now["task_id"], later["task_id"]]
    assert claims[1].at >= int(due.timestamp() * 1_000)
