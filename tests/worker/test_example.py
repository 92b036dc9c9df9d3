"""The example kind, killed with -9 and stopped in order: its numbers are the same to the last bit."""

from __future__ import annotations

import ast
import sys
from functools import partial
from pathlib import Path

import pytest

import examples.heat
from examples.heat import Heat
from tests.support.wait import until
from tests.worker.crew import Crew
from tests.worker.test_processes import _newer, holder, workers
from unbroken.tasks.kind import Run, Text
from unbroken.tasks.submit import NewTask
from unbroken.worker.context import Context

INPUT = {"size": 50, "steps": 3_000, "every": 250}


def undisturbed() -> str:
    """What one run without any trouble writes."""

    class Plain:
        state = None
        input = Heat.Input(**INPUT)

    run: Run = Plain()  # type: ignore[assignment]
    return "".join(update.text for update in Heat().run(run) if isinstance(update, Text))


@pytest.mark.parametrize("inline_max", [1_000, 1_000_000])
async def test_a_grid_survives_kills_and_stops(monkeypatch: pytest.MonkeyPatch, inline_max: int) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    async with workers(2, kinds="examples.heat", checkpoint_s=0.2, checkpoint_inline_max=inline_max) as (stack, crew):
        new = NewTask(owner="local", kind="heat", input=INPUT, unit="steps", total=INPUT["steps"])
        task, _ = await crew.store.create(new, actor="local")
        for kill in (True, False):
            held = await until(partial(_saved, crew, task.id), "a checkpoint of this run")
            assert held
            now = await crew.look(task.id)
            victim = holder(stack, now)
            if kill:
                victim.kill()
            else:
                assert await victim.stop() == 0
            stack.workers.remove(victim)
            await stack.start_worker()
            await until(partial(_newer, crew, task.id, now.num("epoch")), "another worker to take over")
        end = await crew.reach(task.id, "completed", within=60)
        assert (end.num("attempts"), end.num("losses"), end.num("interruptions")) == (3, 1, 1)
        await crew.check_text(task.id, undisturbed())


async def _saved(crew: Crew, task_id: str) -> bool:
    task = await crew.look(task_id)
    epoch = task.text("epoch")
    return task.checkpoint is not None and task.checkpoint.event_id.startswith(f"{epoch}-")


def test_the_example_needs_nothing_that_up_does_not_install() -> None:
    source = ast.parse(Path(examples.heat.__file__).read_text())
    modules = {
        node.module.split(".")[0] for node in ast.walk(source) if isinstance(node, ast.ImportFrom) and node.module
    }
    modules |= {
        name.name.split(".")[0] for node in ast.walk(source) if isinstance(node, ast.Import) for name in node.names
    }
    assert modules <= sys.stdlib_module_names | {"pydantic", "unbroken"}


def test_the_context_is_a_run() -> None:
    assert set(Run.__annotations__) <= set(Context.__annotations__)
