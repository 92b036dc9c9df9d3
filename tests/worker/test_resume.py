"""Where a task continues when its checkpoints are damaged (G10): the one before, the text, or a person. Never zero."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support.desk import OWNER
from tests.worker.crew import Crew, expected
from tests.worker.test_stops import Watched
from unbroken.tasks import keys
from unbroken.tasks.inputs import Generation
from unbroken.tasks.kind import Checkpoint, Kind, Piece, Prefix, Progress, Rewind, Run, Text, Update
from unbroken.worker.backends.base import Call


class Counter(Kind):
    """State is the truth: counts, one line each, and offers a point after each line. `pad`: bytes of state."""

    name = "counter"
    unit = "steps"
    seen: list[tuple[Any, str]]

    class Input(BaseModel):
        """How far."""

        upto: int
        stop_at: int = -1
        pad: int = 0

    def __init__(self) -> None:
        self.seen = []

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """Count on."""
        n = run.state["n"] if run.state else 0
        self.seen.append((n, run.text))
        pad = random.Random(1).randbytes(run.input.pad)
        while n < run.input.upto:
            yield Text(f"{n}\n", count=0)
            n += 1
            yield Progress(n, run.input.upto)
            yield Checkpoint({"n": n, "pad": pad}, milestone=True)
            if n == run.input.stop_at and len(self.seen) == 1:
                raise RuntimeError("enough")


def lines(upto: int) -> str:
    """What Counter writes."""
    return "".join(f"{n}\n" for n in range(upto))


Damage = Callable[[dict[bytes, bytes], str], None]


def flip(ckpt: dict[bytes, bytes], which: str) -> None:
    """One byte is wrong."""
    name = f"{which}.data".encode()
    ckpt[name] = bytes([ckpt[name][0] ^ 0xFF]) + ckpt[name][1:]


def cut(ckpt: dict[bytes, bytes], which: str) -> None:
    """The end is missing."""
    name = f"{which}.data".encode()
    ckpt[name] = ckpt[name][:-1]


def other_schema(ckpt: dict[bytes, bytes], which: str) -> None:
    """Written by another version of the kind."""
    ckpt[f"{which}.schema".encode()] = b"99"


def torn(ckpt: dict[bytes, bytes], which: str) -> None:
    """A field is missing."""
    del ckpt[f"{which}.sha256".encode()]


def ahead(ckpt: dict[bytes, bytes], which: str) -> None:
    """It belongs to a text that is not there."""
    ckpt[f"{which}.offset".encode()] = b"100000"


DAMAGES = [flip, cut, other_schema, torn, ahead]


async def _damage(crew: Crew, task_id: str, damage: Damage, *which: str) -> None:
    key = keys.key("ckpt", task_id)
    ckpt = await crew.redis.hgetall(key)
    assert b"b.data" in ckpt, "two generations"
    for one in which:
        damage(ckpt, one)
    await crew.redis.delete(key)
    await crew.redis.hset(key, mapping=ckpt)


async def _half_counted(crew: Crew, **more: int) -> tuple[Counter, str]:
    counter = Counter()
    crew.kinds = {"counter": counter}
    task_id = await crew.submit("counter", {"upto": 20, "stop_at": 10, **more}, max_attempts=2)
    async with crew.working(backoff_base_s=300, backoff_cap_s=300):
        await crew.reach(task_id, "recovering")
    await crew.store.pause(task_id, OWNER, actor="me")
    return counter, task_id


async def _recover(crew: Crew, task_id: str) -> None:
    await crew.store.recover(task_id, OWNER, actor="me", recovery_id="r")


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_newest_falls_back_to_the_one_before_and_says_so(crew: Crew, damage: Damage) -> None:
    counter, task_id = await _half_counted(crew)
    await _damage(crew, task_id, damage, "a")
    await _recover(crew, task_id)
    async with crew.working():
        task = await crew.reach(task_id, "completed")
    assert counter.seen == [(0, ""), (9, lines(9))], "viewers were taken back to where the older one was"
    assert "could not be used" in task.text("warning")
    await crew.check_text(task_id, lines(20))


@pytest.mark.parametrize("damage", DAMAGES)
async def test_with_none_left_the_task_waits_and_never_starts_from_zero(crew: Crew, damage: Damage) -> None:
    counter, task_id = await _half_counted(crew)
    await _damage(crew, task_id, damage, "a", "b")
    await _recover(crew, task_id)
    async with crew.working():
        task = await crew.reach(task_id, "paused")
    assert task.text("reason") == "checkpoint_failed"
    assert len(counter.seen) == 1
    assert await crew.folded(task_id) == lines(10), "the text stays"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", [("a",), ("a", "b")])
async def test_a_text_goes_on_from_the_log_alone(crew: Crew, damage: Damage, which: tuple[str, ...]) -> None:
    task_id = await crew.text(400, fail="transient", fail_at=250)
    backend = Watched()
    async with crew.working(backend=backend, backoff_base_s=300, backoff_cap_s=300, checkpoint_tokens=50):
        await crew.reach(task_id, "recovering")
    await crew.store.pause(task_id, OWNER, actor="me")
    await _damage(crew, task_id, damage, *which)
    await _recover(crew, task_id)
    async with crew.working(backend=backend):
        await crew.reach(task_id, "completed")
    await crew.check_text(task_id, expected(400))
    assert [count for _, count in backend.made] == [250, 150], "nothing was made twice"


async def test_large_states_go_through_the_object_store_and_the_old_ones_are_deleted(
    crew: Crew, tmp_path: Path
) -> None:
    crew.settings = crew.settings.model_copy(update={"checkpoint_inline_max": 1_000})
    counter, task_id = await _half_counted(crew, pad=50_000)
    task = await crew.look(task_id)
    assert task.checkpoint is not None
    assert task.checkpoint.where.startswith(f"s0/{task_id}/")
    kept = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    assert len(kept) == 2, "the newest two"
    await _recover(crew, task_id)
    async with crew.working():
        await crew.reach(task_id, "completed")
    assert counter.seen[1] == (10, lines(10))
    await crew.check_text(task_id, lines(20))


async def test_a_missing_object_falls_back(crew: Crew, tmp_path: Path) -> None:
    crew.settings = crew.settings.model_copy(update={"checkpoint_inline_max": 1_000})
    counter, task_id = await _half_counted(crew, pad=50_000)
    task = await crew.look(task_id)
    assert task.checkpoint is not None
    (tmp_path / "objects" / task.checkpoint.where).unlink()
    await _recover(crew, task_id)
    async with crew.working():
        await crew.reach(task_id, "completed")
    assert counter.seen[1] == (9, lines(9))


async def test_three_failed_saves_pause_the_task(crew: Crew, tmp_path: Path) -> None:
    counter = Counter()
    crew.kinds = {"counter": counter}
    crew.settings = crew.settings.model_copy(update={"checkpoint_inline_max": 1_000})
    (tmp_path / "objects").write_text("a file where a folder belongs")
    task_id = await crew.submit("counter", {"upto": 20, "pad": 50_000})
    async with crew.working():
        task = await crew.reach(task_id, "paused")
    assert task.text("reason") == "checkpoint_failed"
    assert "not saved" in task.text("warning")
    assert await crew.folded(task_id) == lines(3), "stopped at the third, the text is kept"
    (tmp_path / "objects").unlink()
    await _recover(crew, task_id)
    async with crew.working():
        await crew.reach(task_id, "completed")
    await crew.check_text(task_id, lines(20))


async def test_a_state_that_cannot_be_encoded_counts_as_a_failed_save(crew: Crew) -> None:
    class Odd(Counter):
        name = "odd"

        async def run(self, run: Run) -> AsyncIterator[Update]:
            for n in range(10):
                yield Text(f"{n}\n")
                yield Checkpoint({"n": object()}, milestone=True)

    crew.kinds = {"odd": Odd()}
    task_id = await crew.submit("odd", {"upto": 1})
    async with crew.working():
        task = await crew.reach(task_id, "paused")
    assert task.text("reason") == "checkpoint_failed"


async def test_what_a_text_kind_gets_on_resume(crew: Crew) -> None:
    """The ids of the checkpoint and of the log behind it are all the ids there are."""
    got: list[tuple[int, int, int]] = []

    class Spy(Watched):
        async def generate(self, ask: Any, prefix: Any, call: Any) -> AsyncIterator[Any]:  # type: ignore[override]
            got.append((len(prefix.text), len(prefix.tokens), prefix.count))
            assert list(prefix.tokens) == list(range(len(prefix.tokens)))
            async for piece in super().generate(ask, prefix, call):
                yield piece

    task_id = await crew.text(300, fail="transient", fail_at=130)
    async with crew.working(backend=Spy(), checkpoint_tokens=50, flush_ms=1):  # type: ignore[arg-type]
        await crew.reach(task_id, "completed")
    assert got == [(0, 0, 0), (len(expected(130)), 130, 130)]
    await crew.check_text(task_id, expected(300))


class Stateful(Watched):
    """Gives its own state at every tenth piece, as a backend with a cache does; `broken`: it cannot be had."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.broken = broken
        self.got: list[tuple[int, bytes | None]] = []

    async def generate(self, ask: Generation, prefix: Prefix, call: Call) -> AsyncGenerator[Piece | Rewind, None]:
        """See Watched."""
        self.got.append((prefix.count, prefix.state))
        k = prefix.count
        async for piece in super().generate(ask, prefix, call):
            k += 1
            if isinstance(piece, Piece) and k % 10 == 0:
                piece = replace(piece, save=partial(self._save, k))
            yield piece

    async def _save(self, k: int) -> bytes:
        if self.broken:
            raise OSError("the slot is busy")
        return f"state at {k}".encode()


@pytest.mark.parametrize("kind", ["text", "chain"])
async def test_the_backends_own_state_comes_back_and_may_be_older_than_the_text(crew: Crew, kind: str) -> None:
    script = {"seed": 7, "tokens": 150, "fail": "transient", "fail_at": 137}
    body: dict[str, Any] = {"prompt": "x"} if kind == "text" else {"steps": [{"name": "a", "prompt": "x"}]}
    task_id = await crew.submit(kind, {**body, "scripted": script})
    backend = Stateful()
    async with crew.working(backend=backend, checkpoint_tokens=10_000, checkpoint_s=1_000):
        await crew.reach(task_id, "completed")
    assert backend.got == [(0, None), (137, b"state at 130")]


async def test_a_backends_state_that_cannot_be_had_harms_nobody(crew: Crew) -> None:
    task_id = await crew.text(150, fail="transient", fail_at=137)
    backend = Stateful(broken=True)
    async with crew.working(backend=backend):
        task = await crew.reach(task_id, "completed")
    assert backend.got == [(0, None), (137, None)]
    assert task.text("warning") == ""
    await crew.check_text(task_id, expected(150))
