"""A chain through stops, faults and backends that start over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.worker.crew import Crew, expected
from tests.worker.orders import article, chain
from tests.worker.test_stops import Watched
from unbroken.tasks.kind import Prefix, Rewind
from unbroken.worker.backends.scripted import ScriptedBackend


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
