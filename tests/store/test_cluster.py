"""Redis as a cluster refuses scripts that reach into another slot. Every script and every plain command runs here
against a node of one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.cluster import one_node, tcp
from tests.support.desk import OWNER, Desk
from unbroken.tasks import access, keys
from unbroken.tasks.audit import check_log, recount
from unbroken.tasks.connection import connect
from unbroken.tasks.lease import Last
from unbroken.tasks.overview import owner_stats, totals
from unbroken.tasks.scripts import names
from unbroken.tasks.settings import Settings

DAY = 86_400_000


@pytest.fixture
async def clustered(engine: str) -> AsyncIterator[Desk]:
    """A store on a node of a cluster, and time under the test's control."""
    with one_node() as node:
        client = connect(tcp(node), name="test")
        desk = Desk(client, Settings(redis_url=tcp(node), lease_s=2, archive=True), clock=keys.key("clock"))
        await desk.set_time(1_767_225_600_000)
        yield desk
        await client.aclose()


async def _one_that_ends_well(desk: Desk) -> str:
    task = await desk.submit(idempotency_key="k", callback="https://example.org", cache_ms=DAY)
    lease = (await desk.claim()).lease
    await desk.write(lease, "x" * 9_000, at=0, batch=1)
    for seq in (1, 2):
        await desk.save(lease, {"seq": seq}, seq=seq, offset=9_000)
    await desk.beat(lease)
    await desk.holder().item(lease, 0, b'{"index":0,"ok":true,"result":"r"}', 1)
    await desk.holder().warn(lease, "careful", unsaved=1)
    await desk.complete(lease, "x" * 9_000)
    ((member, *_),) = await desk.store.hooks(limit=10, hold_s=30)
    await desk.store.hook_end(member, again_s=None, outcome="delivered")
    assert (await desk.submit(idempotency_key="k", callback="https://example.org", cache_ms=DAY)).id == task.id
    assert (await desk.submit(callback="https://example.org", cache_ms=DAY)).id == task.id
    return task.id


async def _one_that_sees_everything_else(desk: Desk) -> str:
    task = await desk.submit(max_attempts=2, due_ms=1_767_225_600_000 + 1_000)
    await desk.tick(1_100)
    assert await desk.fail((await desk.claim()).lease, retryable=True) == "recovering"
    assert await desk.fail((await desk.claim()).lease, retryable=True) == "failed"
    assert [group["count"] for group in await desk.store.dead_groups(OWNER)] == [1]
    await desk.store.replay(task.id, OWNER, actor="a")
    await desk.holder().release((await desk.claim()).lease, Last(0), to="recovering")
    await desk.store.pause(task.id, OWNER, actor="a")
    await desk.store.recover(task.id, OWNER, actor="a", recovery_id="r")
    await desk.claim()
    await desk.tick(3 * desk.settings.lease_ms)
    assert (await desk.store.reap())[1] == 1
    await desk.store.cancel(task.id, OWNER, actor="a")
    return task.id


async def test_every_script_runs_on_a_node_of_a_cluster(clustered: Desk) -> None:
    desk, store = clustered, clustered.store
    done, gone = await _one_that_ends_well(desk), await _one_that_sees_everything_else(desk)
    found = {raw.decode() for raw in await desk.redis.keys("*")}
    assert len(found) > 20
    assert len({await desk.redis.execute_command("CLUSTER KEYSLOT", name) for name in found}) == 1
    assert await store.snapshot(done) is not None
    assert await store.admit("submit:local", per_minute=10) == 0
    assert await store.take("model", per_minute=10) == 0
    assert (await recount(store, repair=True)).differences == []
    assert await check_log(store, done) == []
    assert (await owner_stats(store, OWNER))["states"]["completed"] == 1
    assert (await totals(store))["indexes"]["done"] == 2
    await store.purge(gone, OWNER, actor="a")
    await desk.set_time(1_767_225_600_000 + 8 * DAY)
    assert (await store.sweep())[2] == [done]
    await store.archived(done)
    assert (await store.sweep())[0] == 1
    assert [task.id for task in (await store.list_tasks(OWNER)).tasks] == [done]
    _, secret = await access.create_key(store, "eve")
    signed_in = access.Access(store)
    key = await signed_in.by_key(secret)
    assert key is not None
    assert await signed_in.by_session(await signed_in.open_session(key)) == key
    known = await desk.redis.script_exists(*(store.calls.script(name).sha for name in names()))
    assert [name for name, there in zip(names(), known, strict=True) if not there] == [], "every script has run"
