"""What could stay for ever (G17): callbacks that nobody delivers, records that cannot be read."""

from __future__ import annotations

from tests.support.desk import OWNER, Desk
from unbroken.tasks import keys

START = 1_767_225_600_000
DAY = 86_400_000


async def _left(desk: Desk, *ids: str) -> set[str]:
    """Keys that belong to these tasks, and indexes that name them."""
    found = set()
    for raw in await desk.redis.keys("ub:*"):
        name = raw.decode()
        if any(task_id in name for task_id in ids):
            found.add(name)
        elif await desk.redis.type(raw) == b"zset":
            members = [member.decode() for member in await desk.redis.zrange(raw, 0, -1)]
            found |= {name for member in members if any(task_id in member for task_id in ids)}
    return found


async def test_a_callback_that_nobody_delivers_goes_with_its_task(timed: Desk) -> None:
    """The secret was taken away: no server takes them any more."""
    tasks = [await timed.submit(callback="https://example.org/hook") for _ in range(2)]
    for _ in tasks:
        await timed.complete((await timed.claim()).lease, "")
    assert await timed.redis.zcard(keys.key("hooks")) == 2
    await timed.store.purge(tasks[0].id, OWNER, actor="a")
    assert await timed.redis.zcard(keys.key("hooks")) == 1
    for days in (8, 31):
        await timed.set_time(START + days * DAY)
        await timed.store.sweep()
    assert await _left(timed, *(task.id for task in tasks)) == set()


async def test_a_replay_takes_the_call_about_its_failure_back(timed: Desk) -> None:
    task = await timed.submit(callback="https://example.org/hook")
    await timed.fail((await timed.claim()).lease, retryable=False)
    await timed.store.replay(task.id, OWNER, actor="a")
    assert await timed.redis.zcard(keys.key("hooks")) == 0
    await timed.complete((await timed.claim()).lease, "")
    assert await timed.redis.zrange(keys.key("hooks"), 0, -1) == [f"{task.id}:2".encode()]


async def test_what_cannot_be_read_goes_after_the_life_of_a_record(timed: Desk) -> None:
    """One lacks a field, one is no hash at all, one was running, one has a checkpoint that is no hash; and a whole one
    that was only taken for broken stays."""
    tasks = []
    for n in range(5):
        tasks.append(await timed.submit(idempotency_key=f"k{n}"))
        await timed.tick(1)  # they are claimed in this order
    waiting, wrong, running, done, whole = tasks
    held = {(got := await timed.claim()).lease.task_id: got.lease for _ in range(2)}
    first, second = list(held)
    await timed.write(held[first], "text", at=0, batch=1)
    await timed.save(held[first], {"a": 1}, seq=1, offset=4)
    await timed.complete(held[second], "")
    spare = [task.id for task in (waiting, wrong, running, done, whole) if task.id not in held]
    await timed.redis.hdel(keys.key("task", first), "n")
    await timed.redis.hdel(keys.key("task", spare[0]), "owner")
    await timed.redis.set(keys.key("task", spare[1]), "no hash")
    await timed.redis.delete(keys.key("ckpt", second))
    await timed.redis.set(keys.key("ckpt", second), "no hash")
    await timed.redis.zadd(keys.key("broken"), {spare[2]: START})
    await timed.claim()  # finds out about the two, and takes the whole one
    await timed.tick(5_000)
    await timed.store.reap()
    assert await timed.redis.zcard(keys.key("broken")) == 4
    await timed.set_time(START + 29 * DAY)
    await timed.store.sweep()
    assert await timed.redis.exists(keys.key("task", first)), "time to look at it"
    for days in (31, 62):
        await timed.set_time(START + days * DAY)
        await timed.store.sweep()
    assert await _left(timed, first, second, *spare[:2]) == set()
    answers = [await timed.redis.hget(name, "task") for name in await timed.redis.keys("ub:{s0}:idem:*")]
    assert not {first.encode(), spare[0].encode()} & set(answers)
    assert await timed.redis.zcard(keys.key("broken")) == 0
    assert (await timed.store.get(spare[2], OWNER)).state.value == "recovering"
