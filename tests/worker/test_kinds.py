"""Kinds that users bring, also those that block, do not stop, or try to end the worker."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.support.desk import OWNER
from tests.support.wait import until
from tests.worker.crew import Crew
from unbroken.tasks.kind import Checkpoint, Kind, Run, Text, Update
from unbroken.tasks.registry import BadKind, specs
from unbroken.tasks.settings import Settings
from unbroken.worker.kinds.registry import load_kinds


class Blocking(Kind):
    """Blocks the event loop for `seconds`, and says so."""

    name = "blocking"

    class Input(BaseModel):
        """How long."""

        seconds: float

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """Badly behaved on purpose."""
        yield Text("before ")
        time.sleep(run.input.seconds)
        yield Text("after")


async def test_a_kind_that_blocks_the_loop_keeps_its_lease(crew: Crew) -> None:
    """G7: four leases long, while a second worker's reaper would love to take it."""
    crew.kinds = {"blocking": Blocking()}
    task_id = await crew.submit("blocking", {"seconds": 2.4})
    epochs = []
    done = asyncio.Event()

    def reap_beside() -> None:
        async def loop() -> None:
            from redis.asyncio import Redis

            from unbroken.tasks.store import Store

            client = Redis.from_url(crew.settings.redis_url)
            store = Store(client, crew.settings.model_copy(update={"lease_s": 0.6}))
            while not done.is_set():
                epochs.append(await store.reap())
                await asyncio.sleep(0.02)
            await client.aclose()

        asyncio.run(loop())

    beside = asyncio.create_task(asyncio.to_thread(reap_beside))
    async with crew.working(lease_s=0.6):
        task = await crew.reach(task_id, "completed")
    done.set()
    await beside
    assert task.num("attempts") == 1
    assert not any(lost for _, lost in epochs)
    assert len(epochs) > 20
    await crew.check_text(task_id, "before after")


class Plain(Kind):
    """An ordinary generator."""

    name = "plain"

    class Input(BaseModel):
        """How far, and how long each step takes."""

        upto: int
        each_s: float = 0.0

    def run(self, run: Run) -> Iterator[Update]:
        """Count."""
        n = run.state["n"] if run.state else 0
        while n < run.input.upto:
            time.sleep(run.input.each_s)
            yield Text(f"{n} ")
            n += 1
            yield Checkpoint({"n": n})


async def test_a_plain_generator_runs_in_a_thread_and_blocks_nobody(crew: Crew) -> None:
    crew.kinds = {**crew.kinds, "plain": Plain()}
    slow = await crew.submit("plain", {"upto": 3, "each_s": 0.4})
    quick = await crew.text(100)
    async with crew.working():
        await crew.reach(quick, "completed")
        assert await crew.state(slow) == "processing"
        await crew.reach(slow, "completed")
    await crew.check_text(slow, "0 1 2 ")


async def test_a_plain_generator_is_stopped_behind_its_step(crew: Crew) -> None:
    crew.kinds = {"plain": Plain()}
    task_id = await crew.submit("plain", {"upto": 40, "each_s": 0.05})
    for length in (10, 40):
        async with crew.working():
            await crew.long(task_id, length)
    async with crew.working():
        await crew.reach(task_id, "completed")
    await crew.check_text(task_id, "".join(f"{n} " for n in range(40)))
    texts = [data["text"] for name, data in await crew.log(task_id) if name == "chunk"]
    assert "".join(texts) == "".join(f"{n} " for n in range(40)), (
        "a stop in order redoes nothing, so nothing is rewound"
    )


class Stubborn(Kind):
    """Swallows its cancellation until it is let go."""

    name = "stubborn"
    let_go = False
    gone = False

    class Input(BaseModel):
        """Nothing."""

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """For ever."""
        yield Text("kept")
        while not self.let_go:
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue
        self.gone = True


async def test_a_kind_that_cannot_be_stopped_is_left_behind(crew: Crew) -> None:
    stubborn = Stubborn()
    crew.kinds = {"stubborn": stubborn}
    task_id = await crew.submit("stubborn", {})
    async with crew.working(drain_s=0.5):
        await crew.long(task_id, 4)
        await crew.store.pause(task_id, OWNER, actor="me")
        task = await crew.reach(task_id, "paused")
    assert task.text("reason") == "requested"
    assert await crew.folded(task_id) == "kept"
    stubborn.let_go = True
    await until(lambda: stubborn.gone, "the kind to end")


class Sleeper(Kind):
    """One step in a thread that takes longer than any grace."""

    name = "sleeper"
    wake = threading.Event()

    class Input(BaseModel):
        """Nothing."""

    def run(self, run: Run) -> Iterator[Update]:
        """A point, then a step that does not end."""
        if run.state is None:
            yield Text("kept ")
            yield Checkpoint({"n": 1})
            self.wake.wait(30)
        yield Text("and more")


async def test_a_thread_that_does_not_end_is_left_behind_and_its_last_point_saved(crew: Crew) -> None:
    sleeper = Sleeper()
    crew.kinds = {"sleeper": sleeper}
    task_id = await crew.submit("sleeper", {})
    async with crew.working(drain_s=1):
        await crew.long(task_id, 5)
    task = await crew.look(task_id)
    assert (task.state.value, task.num("interruptions")) == ("recovering", 1)
    assert task.checkpoint is not None
    async with crew.working():
        await crew.reach(task_id, "completed")
    sleeper.wake.set()
    await crew.check_text(task_id, "kept and more")


class Rude(Kind):
    """Tries to take the worker with it."""

    name = "rude"

    class Input(BaseModel):
        """How."""

        how: str

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """Badly."""
        yield Text("x")
        if run.input.how == "exit":
            sys.exit(3)
        raise asyncio.CancelledError


@pytest.mark.parametrize("how", ["exit", "cancel"])
async def test_a_kind_cannot_end_the_worker(crew: Crew, how: str) -> None:
    crew.kinds = {**crew.kinds, "rude": Rude()}
    rude = await crew.submit("rude", {"how": how}, max_attempts=2)
    async with crew.working():
        task = await crew.reach(rude, "failed")
        assert (task.error or {})["code"] == "unexpected"
        other = await crew.text(20)
        await crew.reach(other, "completed")


def _module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> None:
    (folder / f"{name}.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(str(folder))


def test_kinds_come_from_the_modules_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _module(tmp_path, monkeypatch, "my_kinds", """
        from unbroken.tasks.kind import Kind, Text
        from pydantic import BaseModel

        class Hello(Kind):
            name = "hello"
            class Input(BaseModel):
                who: str
            def run(self, run):
                yield Text("hello " + run.input.who)
            def total(self, data):
                return len(data.who)
        """)  # fmt: skip
    settings = Settings(kinds=" my_kinds ,")
    assert set(load_kinds(settings)) == {"text", "batch", "chain", "hello"}
    spec = specs(settings)["hello"]
    assert spec.unit == "steps"
    assert spec.total(spec.input.model_validate({"who": "you"})) == 3


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_thing_at_all", "no_such_thing_at_all"),
        ("x = 1", "no class that subclasses"),
        ("from unbroken.tasks.kind import Kind\nclass A(Kind):\n    name = 'text'", "'text'"),
        ("from unbroken.tasks.kind import Kind\nclass A(Kind):\n    name = 'no good'", "needs a name"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_bad_module_is_told_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str, request: pytest.FixtureRequest
) -> None:
    name = f"bad_kinds_{abs(hash(source))}"
    _module(tmp_path, monkeypatch, name, source)
    for load in (load_kinds, specs):
        with pytest.raises(BadKind, match=said):
            load(Settings(kinds=name))
