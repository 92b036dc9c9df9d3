"""Many at once: limits that hold at every moment, reapers that look past the living, storms of cancels, counts that are
true."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.desk import OWNER, Desk
from unbroken.tasks import keys
from unbroken.tasks.audit import recount
from unbroken.tasks.errors import LeaseLost, Refused
from unbroken.tasks.lease import Claimed, Last, Lease
from unbroken.tasks.overview import owner_stats, totals

START = 1_767_225_600_000
LEASE = 2_000
MINUTE = 60_000


async def many(desk: Desk, count: int) -> list[Lease]:
    """So many running tasks."""
    for at in range(0, count, 100):
        await asyncio.gather(*(desk.submit() for _ in range(at, min(count, at + 100))))
    leases: list[Lease] = []
    holder = desk.holder()
    while len(leases) < count:
        got = await holder.claim_many([holder.new_token() for _ in range(16)])
        leases += [one.lease for one in got if isinstance(one, Claimed)]
    return leases


async def beat_all(desk: Desk, leases: Sequence[Lease]) -> int:
    """A heartbeat for each; how many were accepted."""
    calls = [("heartbeat", lease.key, (*lease.args, LEASE)) for lease in leases]
    return sum(reply[0] == b"OK" for reply in await desk.store.calls.call_many(calls))


async def counts(desk: Desk) -> Counter[str]:
    """How many tasks in each state."""
    return Counter((await owner_stats(desk.store, OWNER))["states"])


async def test_a_limit_holds_through_every_way_a_lease_may_end(timed: Desk) -> None:
    """500 leases of one owner, ended in every way or taken away, old holders who come back late: never more than three
    at once, and three again at the end."""
    desk = Desk(timed.redis, timed.settings.model_copy(update={"max_running_per_owner": 3}), clock=timed.clock)
    chance, held, old, cycles = random.Random(5), list[Lease](), list[Lease](), 0
    await desk.store.reap()
    await desk.tick(LEASE + 1)
    while cycles < 500:
        await desk.submit(max_crashes=1_000)
        got = await desk.holder().claim(desk.holder().new_token())
        if isinstance(got, Claimed):
            held.append(got.lease)
            cycles += 1
        assert await desk.redis.zcard(keys.key("leases", OWNER)) == len(held) <= 3
        if len(held) < 3 and chance.random() < 0.5:
            continue
        lease = held.pop(chance.randrange(len(held)))
        match chance.choice(["complete", "retry", "dead", "release", "park", "cancel", "lost"]):
            case "complete":
                await desk.complete(lease, "")
            case "retry":
                await desk.fail(lease, retryable=True)
            case "dead":
                await desk.fail(lease, retryable=False)
            case "release":
                await desk.holder().release(lease, Last(0), to="recovering")
            case "park":
                await desk.holder().release(lease, Last(0), to="paused", reason="requested")
            case "cancel":
                await desk.store.cancel(lease.task_id, OWNER, actor="a")
            case _:  # its worker stands still for longer than its lease, and gives it back when it wakes up
                for _ in range(3):
                    await desk.tick(LEASE // 2)
                    assert await beat_all(desk, held) == len(held)
                    await desk.store.reap()
                old.append(lease)
        if old and chance.random() < 0.5:
            late = old.pop()
            try:
                await desk.holder().release(late, Last(0), to="recovering")
            except LeaseLost:
                continue
            raise AssertionError("a lost lease was given back")
    assert (await recount(desk.store)).differences == []
    while held:
        await desk.complete(held.pop(), "")
    while isinstance(got := await desk.holder().claim(desk.holder().new_token()), Claimed):
        held.append(got.lease)
    assert len(held) == 3, "the whole limit is there again"


async def test_the_reaper_looks_past_the_living(timed: Desk) -> None:
    """300 that are renewed and 50 that are not: one look of a hundred finds just the 50."""
    await timed.store.reap()
    await timed.tick(LEASE + 1)
    leases = await many(timed, 350)
    dead = set(random.Random(1).sample(leases, 50))
    for _ in range(3):
        await timed.tick(LEASE // 2)
        assert await beat_all(timed, [lease for lease in leases if lease not in dead]) == 300
    assert await timed.store.reap(limit=100) == (0, 50)
    assert await beat_all(timed, leases) == 300
    states = await counts(timed)
    assert (states["processing"], states["recovering"]) == (300, 50)


async def test_everybody_stands_still_for_two_leases(timed: Desk) -> None:
    """500 running tasks. Where nobody looked meanwhile, nobody is lost. Where somebody did, all are taken over once, in
    bounded steps, and whoever wakes up is told."""
    await timed.store.reap()
    await timed.tick(LEASE + 1)
    leases = await many(timed, 500)
    await timed.set_time(int(await timed.redis.get(timed.clock)) + 2 * LEASE)  # the reaper slept as well
    assert await timed.store.reap() == (0, 0)
    assert await beat_all(timed, leases) == 500
    await timed.tick(2 * LEASE)  # here it looks all the time
    found = [(await timed.store.reap(limit=100))[1] for _ in range(6)]
    assert found == [100, 100, 100, 100, 100, 0]
    assert await beat_all(timed, leases) == 0
    states = await counts(timed)
    assert (states["recovering"], states["paused"], states["processing"]) == (500, 0, 0)
    again: list[Lease] = []
    holder = timed.holder("w2")
    while len(again) < 500:
        got = await holder.claim_many([holder.new_token() for _ in range(16)])
        again += [one.lease for one in got if isinstance(one, Claimed)]
    assert len({lease.task_id for lease in again}) == 500
    assert (await recount(timed.store)).differences == []


async def test_a_storm_of_cancels(desk: Desk) -> None:
    """Each task three times, in every state, while workers claim: one end each, nothing left in any queue."""
    running = await many(desk, 200)
    waiting = [task.id for at in range(4) for task in await asyncio.gather(*(desk.submit() for _ in range(100)))]
    ids = [lease.task_id for lease in running] + waiting
    holder = desk.holder("w2")
    calls = [
        ("cancel", keys.key("task", task_id), (task_id, OWNER, "a", 1_000_000, 1_000_000))
        for _ in range(3)
        for task_id in ids
    ]
    storms = [desk.store.calls.call_many(calls[at::3]) for at in range(3)]
    claims = [holder.claim_many([holder.new_token() for _ in range(16)]) for _ in range(10)]
    *answers, _ = await asyncio.gather(*storms, asyncio.gather(*claims))
    words = Counter(reply[0] for part in answers for reply in part)
    assert words == {b"OK": 600, b"SAME": 1_200}
    for index in ("ready", "delayed", "leases", "paused"):
        assert await desk.redis.zcard(keys.key(index)) == 0
    assert (await counts(desk))["cancelled"] == 600
    assert (await recount(desk.store)).differences == []
    assert await beat_all(desk, running) == 0
    for task_id in ids[::60]:
        assert [name for _, name, _ in await desk.log(task_id)].count("cancelled") == 1


async def test_a_cancel_in_the_moment_of_completion(desk: Desk) -> None:
    """300 times at once: one of the two wins, and everybody is told the same."""
    outcomes: Counter[str] = Counter()
    for lease in await many(desk, 300):
        done, cancelled = await asyncio.gather(
            desk.complete(lease, ""),
            desk.store.cancel(lease.task_id, OWNER, actor="a"),
            return_exceptions=True,
        )
        state = (await desk.store.get(lease.task_id, OWNER)).state.value
        ends = [name for _, name, _ in await desk.log(lease.task_id) if name in ("done", "cancelled", "failed")]
        if state == "completed":
            assert ends == ["done"]
            assert done is None
            assert isinstance(cancelled, Refused)
        else:
            assert ends == ["cancelled"]
            assert cancelled is True
            assert isinstance(done, LeaseLost)
        outcomes[state] += 1
    assert set(outcomes) <= {"completed", "cancelled"}
    assert (await recount(desk.store)).differences == []


async def test_the_last_hour_is_what_a_recount_says(timed: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures and successes of three owners over three hours, asked every twenty minutes."""

    async def clock() -> int:
        return int(await timed.redis.get(timed.clock))

    monkeypatch.setattr(timed.store, "time_ms", clock)  # the numbers are read outside of scripts
    chance, ends = random.Random(3), list[tuple[int, str, str]]()
    now = START
    for step in range(180):
        now = START + step * MINUTE + chance.randrange(MINUTE)
        await timed.set_time(now)
        for owner in chance.sample(["ann", "bob", "eve"], chance.randrange(3)):
            await timed.submit(owner)
            lease = (await timed.claim()).lease
            if chance.random() < 0.4:
                await timed.fail(lease, retryable=False)
                ends.append((now, owner, "failures"))
            else:
                await timed.complete(lease, "")
                ends.append((now, owner, "successes"))
        if step % 20 == 19:
            since = (now // MINUTE - 59) * MINUTE  # whole minutes
            recent = [(owner, what) for at, owner, what in ends if at >= since]
            everybody = (await totals(timed.store))["last_hour"]
            for what in ("failures", "successes"):
                assert everybody[what] == sum(seen == what for _, seen in recent)
                for owner in ("ann", "bob", "eve"):
                    told = (await owner_stats(timed.store, owner))["last_hour"][what]
                    assert told == sum(seen == (owner, what) for seen in recent)
