"""Every (state, operation) pair, driven through a real Redis and compared with the table in tasks/state.py.

The table is the specification and Lua enforces it: here they cannot drift apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from tests.support.desk import OWNER, Desk
from unbroken.tasks import keys
from unbroken.tasks.errors import LeaseLost, NotFound, Refused
from unbroken.tasks.lease import Claimed, Last, Lease
from unbroken.tasks.state import INDEX, MOVES, REPEATS, TERMINAL, Op, State

GHOST = Lease("s0-" + "0" * 26, "1", "nobody")


@dataclass
class Scene:
    """One task in a wanted state. `lease` is the last lease it had."""

    task_id: str
    lease: Lease


async def bring(desk: Desk, state: State, *, recovery: str = "auto") -> Scene:
    """Bring a fresh task into `state` by legal moves alone."""
    task = await desk.submit(recovery=recovery)
    if state is State.PENDING:
        return Scene(task.id, Lease(task.id, "1", "none"))
    lease = (await desk.claim()).lease
    holder = desk.holder()
    match state:
        case State.PAUSED:
            await holder.release(lease, Last(0), to="paused", reason="timeout")
        case State.RECOVERING:
            await holder.release(lease, Last(0), to="recovering")
        case State.COMPLETED:
            await desk.complete(lease, "")
        case State.FAILED:
            await desk.fail(lease, retryable=False)
        case State.CANCELLED:
            await desk.store.cancel(task.id, OWNER, actor="a")
        case _:
            pass
    return Scene(task.id, lease)


async def claim(desk: Desk, scene: Scene) -> None:
    got = await desk.holder("other").claim("token")
    if not isinstance(got, Claimed):
        raise Refused("?", "nothing to claim")
    assert got.lease.task_id == scene.task_id


async def lose(desk: Desk, scene: Scene) -> None:
    await desk.tick(3 * desk.settings.lease_ms)
    if await desk.store.reap() == (0, 0):
        raise Refused("?", "no lease has run out")


DO: dict[Op, Callable[[Desk, Scene], Awaitable[object]]] = {
    Op.CLAIM: claim,
    Op.COMPLETE: lambda d, s: d.complete(s.lease, ""),
    Op.FAIL_RETRY: lambda d, s: d.fail(s.lease, retryable=True),
    Op.FAIL_DEAD: lambda d, s: d.fail(s.lease, retryable=False),
    Op.RELEASE: lambda d, s: d.holder().release(s.lease, Last(0), to="recovering"),
    Op.PARK: lambda d, s: d.holder().release(s.lease, Last(0), to="paused", reason="requested"),
    Op.LOST_AUTO: lose,
    Op.LOST_MANUAL: lose,
    Op.RECOVER: lambda d, s: d.store.recover(s.task_id, OWNER, actor="a", recovery_id="r"),
    Op.PAUSE: lambda d, s: d.store.pause(s.task_id, OWNER, actor="a"),
    Op.CANCEL: lambda d, s: d.store.cancel(s.task_id, OWNER, actor="a"),
    Op.REPLAY: lambda d, s: d.store.replay(s.task_id, OWNER, actor="a"),
    Op.PURGE: lambda d, s: d.store.purge(s.task_id, OWNER, actor="a"),
}
# A worker that ended a task in order and asks again is recognised (G14); these states have such an end behind them.
ORDERLY = {State.COMPLETED, State.FAILED, State.RECOVERING, State.PAUSED}
ENDS = {Op.COMPLETE, Op.FAIL_RETRY, Op.FAIL_DEAD, Op.RELEASE, Op.PARK}


async def where(desk: Desk, task_id: str) -> set[str]:
    """In which indexes the task stands."""
    names = ("ready", "delayed", "leases", "paused", "dead", "done")
    return {n for n in names if await desk.redis.zscore(keys.key(n), task_id) is not None}


@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize("state", list(State))
async def test_redis_does_what_the_table_says(timed: Desk, state: State, op: Op) -> None:
    scene = await bring(timed, state, recovery="manual" if op is Op.LOST_MANUAL else "auto")
    before, log = await timed.dump(scene.task_id), await timed.log(scene.task_id)
    legal = (state, op) in MOVES
    repeat = state in REPEATS.get(op, ()) or (op in ENDS and state in ORDERLY)
    try:
        await DO[op](timed, scene)
        refused = False
    except (Refused, LeaseLost):
        refused = True

    if not legal:
        assert refused is not repeat
        assert await timed.dump(scene.task_id) == before, "a refused or repeated operation changes nothing"
        return
    assert not refused
    follows = MOVES[state, op]
    if follows is None:
        with pytest.raises(NotFound):
            await timed.store.get(scene.task_id, OWNER)
        assert await where(timed, scene.task_id) == set()
        return
    task = await timed.store.get(scene.task_id, OWNER)
    assert task.state is follows
    (index,) = await where(timed, scene.task_id)
    assert index in INDEX[follows]
    lists = [s for s in State if await timed.redis.zscore(keys.key("list", s, OWNER), scene.task_id) is not None]
    assert lists == [follows]
    if follows is not state:
        events = (await timed.log(scene.task_id))[len(log) :]
        assert len(events) == 1, "one change, one event"
        expected = {State.COMPLETED: "done", State.FAILED: "failed", State.CANCELLED: "cancelled"}
        assert events[0][1] == expected.get(follows, "status")


@pytest.mark.parametrize("op", [Op.RECOVER, Op.PAUSE, Op.CANCEL, Op.REPLAY, Op.PURGE])
async def test_an_unknown_id_leaves_no_residue(timed: Desk, op: Op) -> None:
    before = sorted(await timed.redis.keys("*"))
    with pytest.raises(NotFound):
        await DO[op](timed, Scene(GHOST.task_id, GHOST))
    assert sorted(await timed.redis.keys("*")) == before


def test_the_table_speaks_of_every_state_and_operation() -> None:
    assert {state for state, _ in MOVES} == set(State)
    assert {op for _, op in MOVES} == set(Op)
    assert {op for (_, op), after in MOVES.items() if after is None} == {Op.PURGE}
    out_of_the_end = {op for (state, op), after in MOVES.items() if state in TERMINAL and after is not None}
    assert out_of_the_end == {Op.REPLAY}, "a terminal state is left only by replay"
