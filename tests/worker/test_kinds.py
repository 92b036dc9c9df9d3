"""chain and batch through kills and stops, and the kinds that users bring."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support.desk import OWNER
from tests.support.wait import until
from tests.worker.crew import Crew, expected
from tests.worker.test_stops import Watched
from unbroken.tasks import events
from unbroken.tasks.errors import Permanent
from unbroken.tasks.inputs import Message, Step
from unbroken.tasks.kind import Checkpoint, Kind, Prefix, Rewind, Run, Text, Update
from unbroken.tasks.registry import BadKind, specs
from unbroken.tasks.result import encode_batch
from unbroken.tasks.settings import Settings
from unbroken.worker.backends.scripted import ScriptedBackend, script_text
from unbroken.worker.kinds.chain import question
from unbroken.worker.kinds.registry import load_kinds

STEPS = [{"name": f"Part {i}", "prompt": f"write part {i}"} for i in range(4)]


def article(tokens: int) -> str:
    """What the chain makes of STEPS."""
    steps = [Step(**step) for step in STEPS]
    text = ""
    for i, step in enumerate(STEPS):
        so_far = text
        text += f"{'' if i == 0 else chr(10) * 2}## {step['name']}\n\n"
        text += script_text(3, tokens, question(steps, i, so_far))
    return text


def chain(tokens: int = 50, **script: Any) -> dict[str, Any]:
    """The input."""
    return {"steps": STEPS, "scripted": {"seed": 3, "tokens": tokens, **script}}


async def test_a_chain_writes_its_sections(crew: Crew) -> None:
    task_id = await crew.submit("chain", chain())
    async with crew.working():
        task = await crew.reach(task_id, "completed")
    await crew.check_text(task_id, article(50))
    assert (task.num("done"), task.num("total")) == (4, 4)
    log = await crew.log(task_id)
    assert len([1 for name, _ in log if name == "checkpoint"]) >= 4


@pytest.mark.parametrize("stops", [1, 4])
async def test_a_chain_that_is_stopped_inside_a_step_continues_that_step(crew: Crew, stops: int) -> None:
    task_id = await crew.submit("chain", chain(tokens=120, rate=400))
    backend = Watched()
    length = 0
    for _ in range(stops):
        async with crew.working(backend=backend):
            length = (await crew.long(task_id, length + 900)).num("length")
    async with crew.working(backend=backend):
        await crew.reach(task_id, "completed")
    await crew.check_text(task_id, article(120))
    assert sum(count for _, count in backend.made) == 4 * 120, "no token twice"


@pytest.mark.parametrize("fail_at", [0, 1, 77, 119])
async def test_a_chain_continues_from_the_log_without_any_checkpoint(crew: Crew, fail_at: int) -> None:
    task_id = await crew.submit("chain", chain(tokens=120, fail="transient", fail_at=fail_at))
    backend = Watched()
    async with crew.working(backend=backend, checkpoints=False):
        await crew.reach(task_id, "completed")
    await crew.check_text(task_id, article(120))
    assert sum(count for _, count in backend.made) == 4 * 120


class Restarting(ScriptedBackend):
    """Cannot continue a text: says so and starts over."""

    def __init__(self) -> None:
        super().__init__()
        self.prefixes: list[int] = []

    async def generate(self, ask: Any, prefix: Any, call: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """From the start, always."""
        self.prefixes.append(len(prefix.text))
        if prefix.text:
            yield Rewind(0)
        async for piece in super().generate(ask, Prefix(), call):
            yield piece


@pytest.mark.parametrize("kind", ["text", "chain"])
async def test_a_backend_that_starts_over_takes_viewers_back_and_ends_exact(crew: Crew, kind: str) -> None:
    script = {"tokens": 120, "rate": 300}
    task_id = await (crew.text(**script) if kind == "text" else crew.submit("chain", chain(**script)))  # type: ignore[arg-type]
    backend = Restarting()
    for length in (300, 1_500 if kind == "chain" else 500):
        async with crew.working(backend=backend):  # type: ignore[arg-type]
            await crew.long(task_id, length)
    async with crew.working(backend=backend):  # type: ignore[arg-type]
        await crew.reach(task_id, "completed")
    await crew.check_text(task_id, article(120) if kind == "chain" else expected(120))
    assert sum(1 for prefix in backend.prefixes if prefix) == 2


# batch


def batch(items: int, **script: Any) -> dict[str, Any]:
    """The input."""
    names = [f"item {i}" for i in range(items)]
    return {"instruction": "describe", "items": names, "scripted": {"seed": 5, "tokens": 30, **script}}


def result(index: int, tokens: int = 30) -> str:
    """What one item gives."""
    return script_text(5, tokens, [Message(role="user", content=f"describe\n\nitem {index}")])


async def test_a_batch_gives_each_item_its_result(crew: Crew) -> None:
    task_id = await crew.submit("batch", batch(25))
    async with crew.working():
        task = await crew.reach(task_id, "completed")
    items = await crew.store.items(task_id)
    whole = json.loads(encode_batch(items))
    assert whole == {"items": [{"index": i, "ok": True, "result": result(i)} for i in range(25)]}
    log = await crew.log(task_id)
    name, done = log[-1]
    assert name == "done"
    raw = encode_batch(items)
    assert (done["length"], done["sha256"]) == (len(raw.decode()), events.sha256(raw))
    assert (task.num("done"), task.num("total"), task.num("length")) == (25, 25, 0)
    assert len([1 for name, _ in log if name == "item"]) == 25


async def test_stopped_again_and_again_nothing_of_a_batch_runs_twice(crew: Crew) -> None:
    """G13; what was half done goes on where it was."""
    task_id = await crew.submit("batch", batch(30, rate=100))
    backend = Watched()
    # Stops are tried here: neither the lease nor the grace may run out because the machine is busy.
    patient: dict[str, Any] = {"lease_s": 20, "drain_s": 30}
    for share in (5, 12, 20):
        async with crew.working(backend=backend, **patient):
            await until(partial(_items_at_least, crew, task_id, share), f"{share} items")
    async with crew.working(backend=backend, **patient):
        await crew.reach(task_id, "completed")
    whole = json.loads(encode_batch(await crew.store.items(task_id)))
    assert [item["result"] for item in whole["items"]] == [result(i) for i in range(30)]
    assert sum(count for _, count in backend.made) == 30 * 30, "no token of any item was made twice"
    events_of = [data["index"] for name, data in await crew.log(task_id) if name == "item"]
    assert sorted(events_of) == list(range(30))


async def _items_at_least(crew: Crew, task_id: str, count: int) -> bool:
    return len(await crew.store.items(task_id)) >= count


class Picky(ScriptedBackend):
    """Refuses some items for good, and fails others once or always."""

    def __init__(self) -> None:
        super().__init__()
        self.tries: Counter[str] = Counter()

    async def generate(self, ask: Any, prefix: Any, call: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """By the last word of the prompt."""
        from unbroken.tasks.errors import Transient

        name = ask.messages[-1].content.rsplit(" ", 1)[1]
        self.tries[name] += 1
        if name == "3":
            raise Permanent("refused", "The model refuses this.")
        if name == "4" or (name == "5" and self.tries[name] == 1):
            raise Transient("overloaded", "The model is busy.")
        async for piece in super().generate(ask, prefix, call):
            yield piece


async def test_a_bad_item_fails_alone(crew: Crew) -> None:
    task_id = await crew.submit("batch", batch(8))
    backend = Picky()
    async with crew.working(backend=backend):  # type: ignore[arg-type]
        task = await crew.reach(task_id, "completed")
    whole = json.loads(encode_batch(await crew.store.items(task_id)))["items"]
    assert [item["index"] for item in whole if not item["ok"]] == [3, 4]
    assert whole[3]["error"] == {"code": "refused", "message": "The model refuses this.", "retryable": False}
    assert (backend.tries["3"], backend.tries["4"], backend.tries["5"]) == (1, 3, 2)
    assert task.text("warning") == "2 of 8 items failed."
    assert task.num("errors") == 0


async def test_never_more_calls_at_once_than_allowed(crew: Crew) -> None:
    task_id = await crew.submit("batch", batch(12, rate=300))
    backend = Watched()
    most = 0
    crew.settings = crew.settings.model_copy(update={"batch_parallel": 3})
    crew.kinds = load_kinds(crew.settings)
    async with crew.working(backend=backend):
        while await crew.state(task_id) != "completed":
            most = max(most, backend.open)
            await asyncio.sleep(0.002)
    assert most == 3


# users' kinds


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
