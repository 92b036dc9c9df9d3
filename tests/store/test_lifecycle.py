"""One task through the store, from submit to its end; read this first."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.desk import OWNER, Desk
from unbroken.tasks import keys
from unbroken.tasks.errors import Conflict, LeaseLost, NotFound, Refused
from unbroken.tasks.events import parse_id
from unbroken.tasks.lease import Claimed, Last


async def test_a_task_runs_from_submit_to_done(desk: Desk) -> None:
    task = await desk.submit(sender="cron", topic="report")
    held = await desk.claim()
    assert held.lease.task_id == task.id
    assert held.num("attempts") == 1
    await desk.write(held.lease, "Hello ", at=0, batch=1)
    await desk.write(held.lease, "wörld", at=6, batch=2)
    await desk.complete(held.lease, "Hello wörld")

    log = await desk.log(task.id)
    assert [name for _, name, _ in log] == ["status", "status", "chunk", "chunk", "done"]
    assert [parse_id(i).n for i, _, _ in log] == [1, 2, 3, 4, 5], "n counts without holes"
    epochs = [parse_id(i).epoch for i, _, _ in log]
    assert epochs == sorted(epochs)
    done = json.loads(log[-1][2])
    assert done["length"] == 11
    assert await desk.store.text(task.id) == "Hello wörld".encode()

    seen = (await desk.store.get(task.id, OWNER)).view()
    assert (seen["state"], seen["length"], seen["progress"], seen["topic"]) == ("completed", 11, 1.0, "report")
    assert seen["last_event_id"] == log[-1][0]
    assert seen["finished_at"] == done["finished_at"]


async def test_a_repeat_of_every_worker_call_changes_nothing(desk: Desk) -> None:
    """G14: the reply was lost, the call is sent again."""
    task = await desk.submit()
    holder = desk.holder()
    token = holder.new_token()
    first, again = await holder.claim(token), await holder.claim(token)
    assert isinstance(first, Claimed)
    assert isinstance(again, Claimed)
    assert first.lease == again.lease
    lease = first.lease
    for _ in range(3):
        await desk.write(lease, "abc", at=0, batch=1)
    for _ in range(3):
        await desk.save(lease, {"n": 1}, seq=1, offset=3)
    for _ in range(3):
        await desk.complete(lease, "abc")
    assert [name for _, name, _ in await desk.log(task.id)] == ["status", "status", "chunk", "checkpoint", "done"]
    assert await desk.store.text(task.id) == b"abc"


async def test_a_lost_lease_refuses_every_write(timed: Desk) -> None:
    """G6: the old holder changes not one key of the task."""
    task = await timed.submit()
    old = (await timed.claim("w1")).lease
    await timed.write(old, "abc", at=0, batch=1)
    await timed.tick(2_500)
    assert await timed.store.reap() == (0, 1)
    new = (await timed.claim("w2")).lease
    before = await timed.dump(task.id)
    holder = timed.holder("w1")
    for attempt in (
        timed.write(old, "zzz", at=3, batch=2),
        timed.save(old, {}, seq=1, offset=3),
        timed.complete(old, "abc"),
        timed.fail(old, retryable=True, at=3),
        holder.release(old, Last(3, b"", 3), to="paused", reason="timeout"),
        holder.item(old, 0, b"{}", 1),
    ):
        with pytest.raises(LeaseLost):
            await attempt
    assert await timed.dump(task.id) == before
    await timed.write(new, "def", at=3, batch=1)
    await timed.complete(new, "abcdef")


async def test_an_outage_gives_every_lease_one_more(timed: Desk) -> None:
    """G15: after a gap in which nobody looked, the living get a lease's time to renew."""
    await timed.submit()
    held = await timed.claim()
    await timed.set_time(1_767_225_600_000 + 60_000)
    assert await timed.store.reap() == (0, 0)
    await timed.write(held.lease, "still here", at=0, batch=1)
    await timed.tick(1_900)
    assert await timed.store.reap() == (0, 0)
    await timed.tick(2_000)
    assert await timed.store.reap() == (0, 1)


async def test_poison_ends_paused_and_progress_is_never_punished(timed: Desk) -> None:
    task = await timed.submit(max_crashes=3)
    for at in range(5):  # gets on each time: never stopped
        held = await timed.claim()
        await timed.write(held.lease, "x", at=at, batch=1)
        await timed.tick(2_500)
        await timed.store.reap()
    for _ in range(2):  # dies at the same place
        await timed.claim()
        await timed.tick(2_500)
        await timed.store.reap()
    seen = (await timed.store.get(task.id, OWNER)).view()
    assert (seen["state"], seen["reason"], seen["crashes"]) == ("paused", "worker_lost", 3)


async def test_recover_is_one_recovery_however_often_it_is_asked(timed: Desk) -> None:
    """G11."""
    task = await timed.submit(recovery="manual")
    await timed.claim()
    await timed.tick(2_500)
    await timed.store.reap()
    answers = await asyncio.gather(
        *(timed.store.recover(task.id, OWNER, actor="a", recovery_id=f"r{i}") for i in range(40))
    )
    assert len({recovery for recovery, _ in answers}) == 1
    assert sum(started for _, started in answers) == 1
    await timed.claim()
    again, started = await timed.store.recover(task.id, OWNER, actor="a", recovery_id="other")
    assert (again, started) == (answers[0][0], False)


async def test_errors_wait_and_then_end_in_the_dead_letters(timed: Desk) -> None:
    task = await timed.submit(max_attempts=2)
    held = await timed.claim()
    assert await timed.fail(held.lease, retryable=True, delay_s=5) == "recovering"
    assert isinstance(await timed.holder().claim("t"), float)
    await timed.tick(5_000)
    held = await timed.claim()
    assert await timed.fail(held.lease, retryable=True, delay_s=5) == "failed"
    groups = await timed.store.dead_groups(OWNER)
    assert [(g["group"], g["count"], g["examples"]) for g in groups] == [("g", 1, [task.id])]
    assert await timed.store.replay(task.id, OWNER, actor="a") == 2
    with pytest.raises(Refused):
        await timed.store.replay(task.id, OWNER, actor="a")
    assert await timed.store.dead_groups(OWNER) == []
    held = await timed.claim()
    await timed.complete(held.lease, "")


async def test_an_end_that_knows_nothing_of_the_text_leaves_it_alone(timed: Desk) -> None:
    task = await timed.submit()
    held = await timed.claim()
    await timed.write(held.lease, "kept", at=0, batch=1)
    assert await timed.fail(held.lease, retryable=False, at=-1) == "failed"
    assert await timed.store.text(task.id) == b"kept"
    assert (await timed.store.get(task.id, OWNER)).num("length") == 4


async def test_one_key_makes_one_task(desk: Desk) -> None:
    answers = await asyncio.gather(*(desk.submit(idempotency_key="k") for _ in range(50)))
    assert len({task.id for task in answers}) == 1
    with pytest.raises(Conflict):
        await desk.submit(idempotency_key="k", topic="other")
    assert (await desk.submit(owner="eve", idempotency_key="k", topic="other")).id != answers[0].id


async def test_another_owner_sees_nothing(desk: Desk) -> None:
    """G16."""
    task = await desk.submit()
    for attempt in (
        desk.store.get(task.id, "eve"),
        desk.store.cancel(task.id, "eve", actor="eve"),
        desk.store.pause(task.id, "eve", actor="eve"),
        desk.store.recover(task.id, "eve", actor="eve", recovery_id="r"),
        desk.store.replay(task.id, "eve", actor="eve"),
        desk.store.purge(task.id, "eve", actor="eve"),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert (await desk.store.list_tasks("eve")).tasks == []


async def test_cancel_takes_the_lease(desk: Desk) -> None:
    """G12."""
    task = await desk.submit()
    held = await desk.claim()
    assert await desk.store.cancel(task.id, OWNER, actor="a")
    assert not await desk.store.cancel(task.id, OWNER, actor="a")
    with pytest.raises(LeaseLost) as lost:
        await desk.write(held.lease, "late", at=0, batch=1)
    assert lost.value.reason == "cancelled"
    assert (await desk.log(task.id))[-1][1] == "cancelled"


async def test_owners_take_turns(desk: Desk) -> None:
    for _ in range(200):
        await desk.submit(owner="crowd")
    await desk.submit(owner="single")
    owners = [(await desk.claim()).text("owner") for _ in range(3)]
    assert "single" in owners


async def test_high_goes_first_and_low_is_not_starved(timed: Desk) -> None:
    low = await timed.submit(head_ms=-600_000, priority="low")
    await timed.submit()
    high = await timed.submit(head_ms=600_000, priority="high")
    first = await timed.claim()
    assert first.lease.task_id == high.id
    await timed.complete(first.lease, "")
    await timed.set_time(1_767_225_600_000 + 1_300_000)
    await timed.submit(head_ms=600_000, priority="high")
    assert (await timed.claim()).text("priority") == "normal"
    assert (await timed.claim()).lease.task_id == low.id


async def test_nothing_is_left_after_retention(timed: Desk) -> None:
    """G17: every key is gone, or has a lifetime."""
    ids = {(await timed.submit(idempotency_key=f"k{i}")).id for i in range(3)}
    held = await timed.claim()
    await timed.write(held.lease, "x" * 20_000, at=0, batch=1)
    await timed.save(held.lease, {"a": 1}, seq=1, offset=20_000)
    await timed.complete(held.lease, "x" * 20_000)
    other = await timed.claim()
    await timed.fail(other.lease, retryable=False)
    (third,) = ids - {held.lease.task_id, other.lease.task_id}
    await timed.store.cancel(third, OWNER, actor="a")
    for days in (8, 31):
        now = int(await timed.redis.get("ub:{s0}:clock"))
        await timed.set_time(now + days * 86_400_000)
        await timed.store.sweep()
    left = {key.decode(): await timed.redis.ttl(key) for key in await timed.redis.keys("ub:*")}
    forever = {key for key, ttl in left.items() if ttl == -1}
    assert forever <= {keys.key("audit"), "ub:{s0}:clock"}, forever
