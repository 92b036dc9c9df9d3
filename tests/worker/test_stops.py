"""Everything that stops a run before its end: pause, cancel, timeouts, shutdown. Nothing that was generated is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.support.desk import OWNER
from tests.support.wait import until
from tests.worker.crew import Crew, expected
from unbroken.tasks.inputs import Generation
from unbroken.tasks.kind import Piece, Prefix, Rewind
from unbroken.worker.backends.base import Call
from unbroken.worker.backends.scripted import ScriptedBackend


class Watched(ScriptedBackend):
    """The scripted backend, and which calls are open right now."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0
        self.made: list[tuple[int, int]] = []

    async def generate(self, ask: Generation, prefix: Prefix, call: Call) -> AsyncGenerator[Piece | Rewind, None]:
        """Counted."""
        self.open += 1
        first = len(prefix.text)
        count = 0
        try:
            async for piece in super().generate(ask, prefix, call):
                count += isinstance(piece, Piece)
                yield piece
        finally:
            self.open -= 1
            self.made.append((first, count))


async def test_pause_saves_here_and_recover_continues_here(crew: Crew) -> None:
    task_id = await crew.text(300, rate=200)
    backend = Watched()
    async with crew.working(backend=backend, checkpoint_tokens=10_000, checkpoint_s=1_000):
        await crew.long(task_id, 400)
        await crew.store.pause(task_id, OWNER, actor="me")
        task = await crew.reach(task_id, "paused")
        assert task.text("reason") == "requested"
        assert task.checkpoint is not None
        assert task.checkpoint.offset == task.num("length"), "saved exactly here"
        assert await until(lambda: backend.open == 0, "the call to close", within=10)
        await crew.store.recover(task_id, OWNER, actor="me", recovery_id="r1")
        await crew.reach(task_id, "completed")
    await crew.check_text(task_id, expected(300))
    assert sum(count for _, count in backend.made) == 300, "no token was made twice"


async def test_cancel_closes_the_model_call_and_nothing_is_written_after_it(crew: Crew) -> None:
    task_id = await crew.text(5_000, rate=200)
    backend = Watched()
    async with crew.working(backend=backend) as worker:
        await crew.long(task_id, 400)
        await crew.store.cancel(task_id, OWNER, actor="me")
        await until(lambda: backend.open == 0, "the upstream call to close", within=10)
        before = await crew.log(task_id)
        await until(lambda: not worker.running, "the slot to be free")
    assert await crew.log(task_id) == before
    assert [name for name, _ in before].count("cancelled") == 1
    assert before[-1][0] == "cancelled"


async def test_cancel_is_seen_while_the_model_is_silent_and_hints_are_lost(crew: Crew) -> None:
    task_id = await crew.text(50, fail="hang", fail_at=10)
    backend = Watched()
    async with crew.working(backend=backend, lease_s=0.6) as worker:
        await crew.long(task_id, len(expected(10)))
        worker._hints._about = lambda _: None
        await crew.store.cancel(task_id, OWNER, actor="me")
        await until(lambda: backend.open == 0, "the heartbeat to notice", within=20)


async def test_the_time_limit_pauses_with_everything_kept(crew: Crew) -> None:
    task_id = await crew.text(3_000, rate=300, timeout_ms=600)
    async with crew.working():
        task = await crew.reach(task_id, "paused")
    assert task.text("reason") == "timeout"
    assert task.checkpoint is not None
    assert task.checkpoint.offset == task.num("length") > 0
    text = await crew.folded(task_id)
    assert expected(3_000).startswith(text)
    assert len(text) == task.num("length")


async def test_a_shutdown_costs_nothing_and_redoes_nothing(crew: Crew) -> None:
    """G9, C2: ten deploys during one task."""
    task_id = await crew.text(600, rate=300, max_attempts=1)
    backend = Watched()
    length = 0
    for _ in range(5):
        async with crew.working(backend=backend):
            length = (await crew.long(task_id, length + 300)).num("length")
        task = await crew.look(task_id)
        assert task.state.value == "recovering"
        assert task.checkpoint is not None
        assert task.checkpoint.offset == task.num("length")
    async with crew.working(backend=backend):
        task = await crew.reach(task_id, "completed")
    await crew.check_text(task_id, expected(600))
    assert (task.num("errors"), task.num("crashes"), task.num("interruptions")) == (0, 0, 5)
    assert sum(count for _, count in backend.made) == 600


async def test_a_silent_model_is_a_transient_failure(crew: Crew) -> None:
    task_id = await crew.text(100, fail="hang", fail_at=40)
    async with crew.working(idle_timeout_s=0.3):
        task = await crew.reach(task_id, "completed")
    await crew.check_text(task_id, expected(100))
    assert task.num("errors") == 1
    states = [(data["state"], data.get("reason")) for name, data in await crew.log(task_id) if name == "status"]
    assert ("recovering", "error") in states, "the retry was announced"  # with `retry_at`, if it is not at once


@pytest.mark.parametrize("slots", [1, 3])
async def test_it_claims_exactly_what_it_has_room_for(crew: Crew, slots: int) -> None:
    ids = [await crew.text(10_000, rate=50) for _ in range(5)]
    async with crew.working(concurrency=slots) as worker:
        await until(lambda: len(worker.running) == slots, "all slots to be used")
        await asyncio.sleep(0)
        states = [await crew.state(task_id) for task_id in ids]
        assert states.count("processing") == slots
        assert states.count("pending") == 5 - slots
        running = next(iter(worker.running))
        await crew.store.cancel(running, OWNER, actor="me")
        await until(lambda: running not in worker.running, "the slot to be free")
        await until(lambda: len(worker.running) == slots, "the slot to be used again")
    assert worker.claims == slots + 1


async def test_a_hang_that_a_timeout_ended_was_one_of_its_times(crew: Crew) -> None:
    """`fail_times: 1` is one hang: the run after the recovery comes to the end."""
    script = {"tokens": 60, "fail": "hang", "fail_at": 20}
    task_id = await crew.submit("text", {"prompt": "x", "scripted": script}, timeout_ms=700)
    async with crew.working():
        task = await crew.reach(task_id, "paused")
        assert task.text("reason") == "timeout"
        await crew.store.recover(task_id, OWNER, actor="me", recovery_id="r")
        await crew.reach(task_id, "completed")
    assert (await crew.look(task_id)).num("attempts") == 2
