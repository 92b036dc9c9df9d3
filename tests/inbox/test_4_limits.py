"""Limits: kept in the database and counted from leases, so they hold and come back whatever dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import httpx
import pytest
from redis.asyncio import Redis

from tests.inbox.office import Office, Record, together
from tests.support.api import Api, scripted
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.tasks.access import create_key
from unbroken.tasks.settings import Settings

MINUTE = 60_000
ALL_AT_ONCE = httpx.Limits(max_connections=None)


@pytest.mark.office(workers=2, lease_s=1, concurrency=4, max_running=5, max_running_per_owner=3)
async def test_limits_hold_and_room_comes_back_when_everything_is_killed(office: Office) -> None:
    stack = office.stack
    apis = {owner: Api(stack.url, key=(await create_key(office.store, owner))[1]) for owner in ("ann", "bob")}
    try:
        tasks = [
            ((await api.submit(scripted(tokens=20, rate=40)))["task_id"], owner)
            for _ in range(10)
            for owner, api in apis.items()
        ]
        for done in (4, 8):
            await until(partial(_ended, office, done), "some to be done")
            stack.kill_workers()
            stack.servers[0].kill()
            await stack.start_server(0)
            for _ in range(2):
                await stack.start_worker()
        for task_id, owner in tasks:
            await apis[owner].until_state(task_id, "completed")
    finally:
        for api in apis.values():
            await api.close()
    steps = list(together(await office.moves()))
    assert max(total for total, _ in steps) == 5, "up to the limit, and never beyond"
    assert {owner: max(running[owner] for _, running in steps) for owner in apis} == {"ann": 3, "bob": 3}
    assert steps[-1][0] == 0
    assert len(await office.moves(op="lost")) > 0, "some were really lost in the middle"


async def _ended(office: Office, count: int) -> bool:
    return await office.count("completed", "ann") + await office.count("completed", "bob") >= count


@pytest.mark.office(workers=2, concurrency=3)
async def test_a_worker_takes_no_more_than_it_has_room_for(office: Office) -> None:
    ids = await office.submit_many(14, scripted(tokens=5, rate=20))
    for task_id in ids:
        await office.api.until_state(task_id, "completed")
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    raw = await office.redis.xrange("ub:{s0}:audit")
    where: dict[bytes, str] = {}
    for _, entry in raw:
        if entry[b"from"] == b"processing":
            running[where[entry[b"task"]]] -= 1
        if entry[b"op"] == b"claim":
            worker = where[entry[b"task"]] = entry[b"actor"].decode()
            running[worker] += 1
            most[worker] = max(most[worker], running[worker])
    assert sorted(most.values()) == [3, 3]


@pytest.mark.office(workers=2, concurrency=40, model_requests_per_minute=60)
async def test_requests_towards_a_model_are_counted_over_all_workers(office: Office, record: Record) -> None:
    """A minute's worth may go at once; from then on one a second."""
    ids = await office.submit_many(63, scripted(tokens=1))
    for task_id in ids:
        await office.api.until_state(task_id, "completed")
    ends = sorted(move.at for move in await office.moves(op="complete"))
    first = min(move.at for move in await office.moves(op="claim"))
    assert ends[-1] - first >= 2_900, "the last three waited for their second"
    assert len(record.calls()) == 63


@pytest.mark.office(workers=1, model_tokens_per_minute=600)
async def test_tokens_towards_a_model_are_counted(office: Office) -> None:
    """What a call may cost at most is taken before it is made: the second one waits for 20 of 600 a minute."""
    data = {"prompt": "x" * 40, "max_tokens": 300}  # 10 + 300 tokens
    ids = [(await office.api.submit(data))["task_id"] for _ in range(2)]
    for task_id in ids:
        await office.api.until_state(task_id, "completed")
    claims, ends = await office.moves(op="claim"), await office.moves(op="complete")
    assert ends[-1].at - min(claim.at for claim in claims) >= 1_900


# submits


@pytest.mark.office(workers=0, submits_per_minute=10)
async def test_three_hundred_submits_at_once_at_ten_a_minute(office: Office) -> None:
    async with httpx.AsyncClient(base_url=office.stack.url, timeout=60, limits=ALL_AT_ONCE, trust_env=False) as client:
        body = {"input": scripted(tokens=1)}
        answers = await asyncio.gather(*(client.post("/api/tasks", json=body) for _ in range(300)))
    assert Counter(answer.status_code for answer in answers) == {201: 10, 429: 290}
    assert await office.count("pending") == 10
    for answer in answers:
        if answer.status_code == 429:
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert "10 tasks a minute" in answer.json()["detail"]


@pytest.fixture
async def timed(redis: Redis, valkey_url: str) -> Desk:
    """A store whose clock the test moves."""
    desk = Desk(redis, Settings(redis_url=valkey_url), clock="ub:{s0}:clock")
    await desk.set_time(1_767_225_600_000)
    return desk


async def test_a_steady_nine_a_minute_is_never_refused(timed: Desk) -> None:
    now = 1_767_225_600_000
    for _ in range(300):
        assert await timed.store.admit("submit:x", per_minute=10) in (0, 60)
    for n in range(9 * 6):
        await timed.set_time(now + MINUTE + n * MINUTE // 9)
        assert await timed.store.admit("submit:x", per_minute=10) == 0


async def test_in_no_minute_more_than_ten(timed: Desk) -> None:
    """However the calls fall; and who waits as long as was said is let in."""
    now, admitted = 1_767_225_600_000, []
    for n in range(400):
        now += (n * n * 7919) % 3_000
        await timed.set_time(now)
        wait = await timed.store.admit("submit:x", per_minute=10)
        if wait == 0:
            admitted.append(now)
        elif n % 50 == 0:
            now += int(wait * 1_000)
            await timed.set_time(now)
            assert await timed.store.admit("submit:x", per_minute=10) == 0
            admitted.append(now)
    assert len(admitted) > 50
    assert all(later - first >= MINUTE for first, later in zip(admitted, admitted[10:], strict=False))
    assert await timed.store.admit("submit:y", per_minute=10) == 0, "another owner has another minute"
