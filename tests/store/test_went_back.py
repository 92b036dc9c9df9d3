"""A Redis that knows less than a lease was told (a failover, a restored file): nothing is put on top of that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.support.desk import Desk
from unbroken.tasks import events, keys
from unbroken.tasks.holder import Holder, WentBack
from unbroken.tasks.lease import Batch, Claimed, Event, Last, Lease

WHAT = ("task", "ev", "text", "marks", "items", "ckpt", "hist")
Write = Callable[[Desk, Holder, Lease], Awaitable[object]]


async def _append(desk: Desk, holder: Holder, lease: Lease) -> object:
    progress = Event(events.PROGRESS, events.encode({"progress": 0.5, "done": 9, "total": None, "unit": "tokens"}))
    return await holder.append(lease, Batch(9, 0, b"", 0, 0.5, 9, None, [progress]))


async def _item(desk: Desk, holder: Holder, lease: Lease) -> object:
    return await holder.item(lease, 7, events.encode({"index": 7, "ok": True, "result": "x"}), 10)


async def _checkpoint(desk: Desk, holder: Holder, lease: Lease) -> object:
    return await desk.save(lease, {"x": 1}, seq=1, offset=0)


async def _complete(desk: Desk, holder: Holder, lease: Lease) -> object:
    await holder.complete(lease, Last(0), sha256=events.sha256(b""), size=0, result_length=0, done=2, total=2)
    return None


async def _fail(desk: Desk, holder: Holder, lease: Lease) -> object:
    return await desk.fail(lease, retryable=False)


async def _release(desk: Desk, holder: Holder, lease: Lease) -> object:
    return await holder.release(lease, Last(0), to="paused", reason="requested")


@pytest.mark.parametrize("write", [_append, _item, _checkpoint, _complete, _fail, _release])
async def test_nothing_is_written_over_a_past_that_lost_its_end(desk: Desk, write: Write) -> None:
    """Two items are acknowledged, then Redis is as it was before the second. Whatever the worker writes next is
    refused; a new lease finds out what is missing, and no event id is given twice."""
    task = await desk.submit()
    holder = desk.holder()
    claimed = await holder.claim(holder.new_token())
    assert isinstance(claimed, Claimed)
    lease = claimed.lease
    await holder.item(lease, 0, events.encode({"index": 0, "ok": True, "result": "a"}), 10)
    before = {what: await desk.redis.dump(keys.key(what, task.id)) for what in WHAT}
    await holder.item(lease, 1, events.encode({"index": 1, "ok": True, "result": "b"}), 10)
    for what, dump in before.items():
        await desk.redis.delete(keys.key(what, task.id))
        if dump is not None:
            await desk.redis.restore(keys.key(what, task.id), 0, dump)
    left = await desk.dump(task.id)
    with pytest.raises(WentBack):
        await write(desk, holder, lease)
    assert await desk.dump(task.id) == left
    assert list(await holder.items(task.id)) == [0]
