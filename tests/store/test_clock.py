"""Redis' own clock is set forward or back by an hour (NTP, a restored machine): the living keep their tasks, the dead
are found, epochs only grow, and nobody waits for the hour to pass again."""

from __future__ import annotations

import pytest

from tests.support.desk import OWNER, Desk
from unbroken.tasks.events import parse_id

START = 1_767_225_600_000
HOUR = 3_600_000
LEASE = 2_000


async def step(desk: Desk, ms: int) -> None:
    """The clock jumps; the reaper looks at once, as it does all the time."""
    await desk.set_time(int(await desk.redis.get(desk.clock)) + ms)
    assert (await desk.store.reap())[1] == 0, "nobody is declared lost at the jump"


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_the_living_keep_their_tasks_and_the_dead_are_found(timed: Desk, jump: int) -> None:
    await timed.store.reap()
    await timed.tick(LEASE + 1)
    alive, dead = await timed.submit(), await timed.submit()
    leases = {(held := await timed.claim()).lease.task_id: held.lease for _ in range(2)}
    await step(timed, jump)
    for at in range(6):  # three leases, a heartbeat every half of one
        await timed.write(leases[alive.id], "x", at=at, batch=at + 1)
        await timed.beat(leases[alive.id])
        await timed.tick(LEASE // 2)
        await timed.store.reap()
    assert (await timed.store.get(alive.id, OWNER)).num("attempts") == 1
    seen = (await timed.store.get(dead.id, OWNER)).view()
    assert (seen["state"], seen["crashes"]) == ("recovering", 1)
    again = (await timed.claim()).lease
    assert again.task_id == dead.id
    await timed.complete(again, "")
    epochs = [parse_id(event_id).epoch for event_id, _, _ in await timed.log(dead.id)]
    assert epochs == sorted(epochs)
    assert int(again.epoch) > int(leases[dead.id].epoch)


async def test_a_retry_does_not_wait_for_the_hour_to_pass_again(timed: Desk) -> None:
    """Its delay counts, not the time at which it would have been over. A wish of the owner's is a time."""
    await timed.store.reap()
    task = await timed.submit()
    await timed.fail((await timed.claim()).lease, retryable=True, delay_s=5)
    wanted = START + 60_000
    later = await timed.submit(due_ms=wanted)
    await step(timed, -HOUR)
    await timed.tick(4_900)
    assert await timed.store.reap() == (0, 0)
    await timed.tick(200)
    assert await timed.store.reap() == (1, 0)
    assert (await timed.claim()).lease.task_id == task.id
    assert (await timed.store.get(later.id, OWNER)).num("retry_at") == wanted
    await timed.set_time(wanted)
    assert await timed.store.reap() == (1, 0)


async def test_limits_are_limits_again_after_a_minute(timed: Desk) -> None:
    for _ in range(3):
        assert await timed.store.admit("submit:local", per_minute=3) == 0
        assert await timed.store.take("model", per_minute=3) == 0
    await timed.set_time(START - HOUR)
    await timed.store.take("model", per_minute=3)  # somebody asks, in vain or not
    await timed.store.admit("submit:local", per_minute=3)
    await timed.set_time(START - HOUR + 61_000)
    assert await timed.store.admit("submit:local", per_minute=3) == 0
    assert await timed.store.take("model", per_minute=3) == 0


@pytest.mark.parametrize("ago", [HOUR, 30_000])
async def test_a_limit_counts_from_the_new_time_on(timed: Desk, ago: int) -> None:
    """Who was admitted before the step is forgotten, and who is after it is counted; none waits longer than ever."""
    for _ in range(3):
        assert await timed.store.admit("submit:local", per_minute=3) == 0
    await timed.set_time(START - ago)
    answers = [await timed.store.admit("submit:local", per_minute=3) for _ in range(5)]
    assert answers == [0, 0, 0, 60, 60]


async def test_a_callback_does_not_wait_for_the_hour_to_pass_again(timed: Desk) -> None:
    """One that was never tried, one that somebody took and died over, one that is to be tried again in 30 s."""
    await timed.store.reap()
    for _ in range(3):
        await timed.submit(callback="https://example.org/hook")
        await timed.complete((await timed.claim()).lease, "")
    taken = await timed.store.hooks(limit=2, hold_s=60)
    await timed.store.hook_end(taken[0][0], again_s=30, outcome="503")
    await step(timed, -HOUR)
    assert len(await timed.store.hooks(limit=10, hold_s=1_000)) == 1
    await timed.set_time(START - HOUR + 31_000)
    assert len(await timed.store.hooks(limit=10, hold_s=1_000)) == 1
    await timed.set_time(START - HOUR + 61_000)
    assert len(await timed.store.hooks(limit=10, hold_s=1_000)) == 1


async def test_owners_still_take_turns(timed: Desk) -> None:
    for owner in ("ann", "bob"):
        for _ in range(6):
            await timed.submit(owner)
        await timed.claim()
    await timed.set_time(START - HOUR)
    owners = []
    for n in range(6):
        await timed.set_time(START - HOUR + n)
        await timed.submit(f"newcomer{n}")
        owners.append((await timed.claim()).text("owner"))
    assert {"ann", "bob"} <= set(owners), "nobody is passed over until the old time comes again"
