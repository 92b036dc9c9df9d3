"""A stateful property test: random operations by owners, workers and the reaper, on a real server and on a small model
in Python; lost replies, repeats, stale leases, script flushes, and time under the test's control.

The model knows nothing of keys and scripts: it only says what a task looks like to people afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from redis.asyncio import Redis

from tests.support.desk import Desk
from unbroken.tasks.audit import check_log, recount
from unbroken.tasks.errors import Conflict, LeaseLost, NotFound, Refused
from unbroken.tasks.lease import Claimed, Last, Lease
from unbroken.tasks.settings import Settings
from unbroken.tasks.state import LIVE, TERMINAL, Op, State, after, sources

START = 1_767_225_600_000
LEASE_MS = 2_000
OWNERS = ("ann", "bob")
T = TypeVar("T")
_url: list[str] = []


@dataclass
class Model:
    """What a task must look like."""

    owner: str
    manual: bool
    max_attempts: int
    max_crashes: int
    due: int
    state: State = State.PENDING
    text: str = ""
    lease: Lease | None = None
    batch: int = 0
    seq: int = 0
    until: int = 0
    errors: int = 0
    crashes: int = 0
    far: int = 0
    fresh: bool = False
    wish: bool = False
    recovery: str | None = None
    saved: list[int] = field(default_factory=list)
    old: list[Lease] = field(default_factory=list)
    left: Lease | None = None
    """The last lease that was given back in order: its end may be confirmed again."""

    def leave(self, state: State) -> None:
        """The lease ends, in order or not."""
        if self.lease is not None:
            self.old.append(self.lease)
        self.lease, self.wish, self.state = None, False, state
        if state not in (State.RECOVERING, State.PROCESSING):
            self.recovery = None


class Machine(RuleBasedStateMachine):
    """Both worlds side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.redis: Any = Redis.from_url(_url[0])
        self.desk = Desk(self.redis, Settings(redis_url=_url[0], lease_s=LEASE_MS / 1000), clock="ub:{s0}:clock")
        self.tasks: dict[str, Model] = {}
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}
        self.now = START
        self.tokens = 0

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        self.do(self.redis.flushall())
        self.do(self.desk.set_time(self.now))
        self.do(self.desk.store.reap())  # the grace of a first start is over before the first task
        self.pass_time(LEASE_MS + 1)

    def teardown(self) -> None:
        for task_id in self.tasks:
            if self.tasks[task_id].state is not State.PROCESSING:
                assert self.do(check_log(self.desk.store, task_id)) == []
        self.do(self.redis.aclose())
        self.runner.close()

    def pick(self, data: st.DataObject, *states: State) -> str | None:
        ids = sorted(i for i, m in self.tasks.items() if not states or m.state in states)
        return data.draw(st.sampled_from(ids)) if ids else None

    def repeat(self, call: Callable[[], Awaitable[T]], times: int) -> T:
        """The reply was lost: send it again. Only the first may change anything."""
        first = self.do(_once(call))
        if times > 1:
            before = [self.do(self.desk.dump(i)) for i in self.tasks]
            for _ in range(times - 1):
                self.do(_once(call))
            assert [self.do(self.desk.dump(i)) for i in self.tasks] == before
        return first

    # owners

    @rule(owner=st.sampled_from(OWNERS), manual=st.booleans(), crashes=st.integers(2, 3))
    def start(self, owner: str, manual: bool, crashes: int) -> None:
        """The most usual beginning, so that random runs get beyond it."""
        self.submit(owner, manual, 2, crashes, 0, None)
        self.claim("w1", False)

    @rule(
        owner=st.sampled_from(OWNERS), manual=st.booleans(), attempts=st.integers(1, 3), crashes=st.integers(1, 3),
        later=st.sampled_from([0, 0, 0, 5_000]), key=st.sampled_from([None, None, "k1", "k2"]),
    )  # fmt: skip
    def submit(self, owner: str, manual: bool, attempts: int, crashes: int, later: int, key: str | None) -> None:
        due = self.now + later if later else 0
        body = repr((manual, attempts, crashes, due))
        given: dict[str, Any] = {"recovery": "manual" if manual else "auto", "due_ms": due}
        given |= {"max_attempts": attempts, "max_crashes": crashes, "idempotency_key": key}
        known = self.keys.get((owner, key)) if key else None
        try:
            task = self.do(self.desk.submit(owner, **given))
        except Conflict:
            assert known is not None
            assert known[1] != body
            return
        if known is not None:
            assert known == (task.id, body)
            return
        self.tasks[task.id] = Model(owner, manual, attempts, crashes, due)
        if key:
            self.keys[owner, key] = (task.id, body)

    @rule(data=st.data(), op=st.sampled_from([Op.RECOVER, Op.PAUSE, Op.CANCEL, Op.REPLAY, Op.PURGE]),
          foreign=st.booleans(), times=st.integers(1, 3))  # fmt: skip
    def owner_asks(self, data: st.DataObject, op: Op, foreign: bool, times: int) -> None:
        task_id = self.pick(data)
        if task_id is None:
            return
        model = self.tasks[task_id]
        owner = "eve" if foreign else model.owner
        store = self.desk.store
        calls: dict[Op, Callable[[], Awaitable[object]]] = {
            Op.RECOVER: lambda: store.recover(task_id, owner, actor="o", recovery_id=f"r{self.now}"),
            Op.PAUSE: lambda: store.pause(task_id, owner, actor="o"),
            Op.CANCEL: lambda: store.cancel(task_id, owner, actor="o"),
            Op.REPLAY: lambda: store.replay(task_id, owner, actor="o"),
            Op.PURGE: lambda: store.purge(task_id, owner, actor="o"),
        }
        again = op is Op.CANCEL and model.state is State.CANCELLED
        again |= op is Op.PAUSE and model.state is State.PAUSED
        again |= op is Op.RECOVER and model.recovery is not None
        allowed = model.state in sources(op)
        try:
            once = op in (Op.REPLAY, Op.PURGE)
            answer = self.repeat(calls[op], 1 if once else times)
        except NotFound:
            assert foreign
            return
        except Refused:
            assert not foreign
            assert not allowed
            assert not again
            return
        assert not foreign
        assert allowed or again
        if op is Op.RECOVER and again:
            assert answer == (model.recovery, False)
        elif allowed:
            self.apply(task_id, model, op, answer)

    def apply(self, task_id: str, model: Model, op: Op, answer: object) -> None:
        if op is Op.PURGE:
            del self.tasks[task_id]
            self.keys = {k: v for k, v in self.keys.items() if v[0] != task_id}
            return
        if op is Op.PAUSE and model.state is State.PROCESSING:
            model.wish = True
            return
        follows = after(model.state, op)
        assert follows is not None
        model.leave(follows)
        model.due = 0
        if op is Op.RECOVER:
            assert isinstance(answer, tuple)
            model.recovery, model.crashes = answer[0], 0
        if op is Op.REPLAY:
            model.errors = model.crashes = 0

    # workers

    @rule(worker=st.sampled_from(["w1", "w2"]), twice=st.booleans())
    def claim(self, worker: str, twice: bool) -> None:
        self.tokens += 1
        holder, token = self.desk.holder(worker), f"t{self.tokens}"
        self.expire()
        waiting = {i for i, m in self.tasks.items() if m.state in sources(Op.CLAIM) and m.due <= self.now}
        got = self.do(holder.claim(token))
        if twice:
            assert self.do(holder.claim(token)) == got or isinstance(got, float)
        if not isinstance(got, Claimed):
            assert not waiting
            return
        assert got.lease.task_id in waiting
        model = self.tasks[got.lease.task_id]
        assert all(int(got.lease.epoch) > int(old.epoch) for old in model.old), "epochs only grow"
        assert got.num("bytes") == len(model.text.encode())
        assert [c.offset for c in got.checkpoints] == model.saved[-1:-3:-1], "the newest two, newest first"
        model.state, model.lease, model.batch, model.seq, model.fresh = State.PROCESSING, got.lease, 0, 0, False
        model.until, model.due = self.now + LEASE_MS, 0

    @precondition(lambda self: any(m.lease for m in self.tasks.values()))
    @rule(data=st.data(), text=st.text(min_size=1, max_size=12), back=st.integers(0, 3), times=st.integers(1, 3))
    def append(self, data: st.DataObject, text: str, back: int, times: int) -> None:
        model = self.tasks[self.pick(data, State.PROCESSING) or ""]
        assert model.lease is not None
        kept = model.text[: max(0, len(model.text) - back)] if back else model.text
        lease, batch = model.lease, model.batch + 1
        self.repeat(lambda: self.desk.write(lease, text, at=len(kept.encode()), batch=batch, chars=len(kept)), times)
        model.text, model.batch, model.until = kept + text, batch, self.now + LEASE_MS
        if len(model.text) > model.far or batch > self.far_done(model):
            model.fresh = True
        model.far = max(model.far, len(model.text))
        model.__dict__["far_done"] = max(self.far_done(model), batch)

    @staticmethod
    def far_done(model: Model) -> int:
        """`Desk.write` counts its batches as `done`."""
        return int(model.__dict__.get("far_done", 0))

    @precondition(lambda self: any(m.lease for m in self.tasks.values()))
    @rule(data=st.data(), times=st.integers(1, 2))
    def checkpoint(self, data: st.DataObject, times: int) -> None:
        model = self.tasks[self.pick(data, State.PROCESSING) or ""]
        assert model.lease is not None
        lease, seq, offset = model.lease, model.seq + 1, len(model.text)
        self.repeat(lambda: self.desk.save(lease, {"at": offset}, seq=seq, offset=offset), times)
        model.seq, model.until = seq, self.now + LEASE_MS
        model.saved.append(offset)

    @precondition(lambda self: any(m.lease for m in self.tasks.values()))
    @rule(data=st.data(), times=st.integers(1, 2),
          op=st.sampled_from([Op.COMPLETE, Op.FAIL_RETRY, Op.FAIL_DEAD, Op.RELEASE, Op.PARK]))  # fmt: skip
    def end(self, data: st.DataObject, op: Op, times: int) -> None:
        model = self.tasks[self.pick(data, State.PROCESSING) or ""]
        assert model.lease is not None
        wished = model.wish
        self.repeat(self.ending(model.lease, op, model.text), times)
        if op in (Op.FAIL_RETRY, Op.FAIL_DEAD):
            model.errors += 1
            op = op if model.errors < model.max_attempts else Op.FAIL_DEAD
        if wished and op in (Op.FAIL_RETRY, Op.RELEASE):
            op = Op.PARK
        recovery, model.left = model.recovery, model.lease
        follows = after(State.PROCESSING, op)
        assert follows is not None
        model.leave(follows)
        model.recovery = recovery if follows is State.RECOVERING else None
        if op is Op.FAIL_RETRY:
            model.due = self.now + 3_000

    def ending(self, lease: Lease, op: Op, text: str) -> Callable[[], Awaitable[object]]:
        at, chars, holder = len(text.encode()), len(text), self.desk.holder()
        last = Last(at, b"", chars)
        error = b'{"code":"c","message":"m","retryable":true}'
        match op:
            case Op.COMPLETE:
                return lambda: self.desk.complete(lease, text)
            case Op.FAIL_RETRY | Op.FAIL_DEAD:
                again = op is Op.FAIL_RETRY
                return lambda: holder.fail(lease, last, retryable=again, delay_s=3, error=error, detail="", group="g")
            case Op.RELEASE:
                return lambda: holder.release(lease, last, to="recovering")
            case _:
                return lambda: holder.release(lease, last, to="paused", reason="timeout")

    @precondition(lambda self: any(m.old for m in self.tasks.values()))
    @rule(data=st.data(), op=st.sampled_from(["append", "save", "beat", Op.COMPLETE, Op.FAIL_RETRY, Op.RELEASE]))
    def zombie(self, data: st.DataObject, op: str) -> None:
        """A former holder wakes up: not one key changes (G6)."""
        old = data.draw(st.sampled_from([(m, lease) for m in self.tasks.values() for lease in m.old]))
        model, lease = old
        before = self.do(self.desk.dump(lease.task_id))
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "append": lambda: self.desk.write(lease, "zombie", at=0, batch=99),
            "save": lambda: self.desk.save(lease, {"bad": 1}, seq=99, offset=len(model.text)),
            "beat": lambda: self.desk.beat(lease),
        }
        call = calls[op] if op in calls else self.ending(lease, Op(op), model.text)
        try:
            self.do(_once(call))
            repeated = op not in calls and lease == model.left
            assert repeated, "only an end that was already written may be confirmed again"
        except LeaseLost:
            pass
        assert self.do(self.desk.dump(lease.task_id)) == before

    # time and trouble

    def pass_time(self, ms: int) -> None:
        self.do(self.desk.tick(ms))
        self.now += ms

    def expire(self) -> None:
        """What the reaper must find at this moment."""
        for model in self.tasks.values():
            if model.state is State.PROCESSING and model.until < self.now:
                model.crashes = 1 if model.fresh else model.crashes + 1
                recovery, wished = model.recovery, model.wish
                parks = wished or model.manual or model.crashes >= model.max_crashes
                model.leave(State.PAUSED if parks else State.RECOVERING)
                model.recovery = None if parks else recovery

    @rule(ms=st.sampled_from([10, 500, 1_500, 4_000]))
    def time_passes(self, ms: int) -> None:
        self.pass_time(ms)
        self.expire()
        self.do(self.desk.store.reap())

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        task_id = self.pick(data, State.PROCESSING)
        if task_id:
            model = self.tasks[task_id]
            assert model.lease is not None
            assert self.do(self.desk.beat(model.lease)) == ("pause" if model.wish else "")
            model.until = self.now + LEASE_MS

    @precondition(lambda self: any(m.lease for m in self.tasks.values()))
    @rule()
    def workers_die(self) -> None:
        """Everything that runs now is lost."""
        self.time_passes(LEASE_MS + 500)

    @rule()
    def scripts_are_forgotten(self) -> None:
        self.do(self.redis.script_flush())

    @rule()
    def sweep(self) -> None:
        assert self.do(self.desk.store.sweep())[0] == 0, "nothing is old enough"

    # what must hold

    @invariant()
    def both_worlds_agree(self) -> None:
        assert self.do(recount(self.desk.store)).differences == []
        for task_id, model in self.tasks.items():
            task = self.do(self.desk.store.get(task_id, model.owner))
            assert task.state is model.state
            assert (self.do(self.desk.store.text(task_id)) or b"").decode() == model.text
            assert task.num("length") == len(model.text)
            assert (task.num("errors"), task.num("crashes")) == (model.errors, model.crashes)
            assert task.state in (LIVE | TERMINAL)


async def _once(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def test_store_and_model_agree(valkey_url: str) -> None:
    _url[:] = [valkey_url]
    Machine.TestCase.settings = hypothesis_settings(
        stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    test = Machine.TestCase()
    test.runTest()


@pytest.fixture(autouse=True)
def _quiet(recwarn: pytest.WarningsRecorder) -> None:
    """Hypothesis replays examples; a client of an aborted one may be collected late."""
