"""A batch and a model that fails for a while: what an outage did to its items is tried again, and none is given up
while there is another try; an item that is bad by itself still fails alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

from tests.worker.crew import Crew
from tests.worker.orders import batch, result
from unbroken.tasks.errors import Transient
from unbroken.tasks.kind import Piece, Rewind
from unbroken.tasks.result import encode_batch
from unbroken.tasks.submit import NewTask
from unbroken.worker.backends.scripted import ScriptedBackend
from unbroken.worker.kinds.registry import load_kinds


class Flaky(ScriptedBackend):
    """Answers some calls with what a proxy says while the server behind it is away."""

    def __init__(self, *, refused: int = 0, after: int = 0, bad: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.refused, self.after, self.bad = refused, after, bad
        self.calls = 0
        self.tries: Counter[str] = Counter()

    async def generate(self, ask: Any, prefix: Any, call: Any) -> AsyncGenerator[Piece | Rewind, None]:
        """Calls `after` up to `after + refused` fail, and always those of the items that are bad."""
        name = ask.messages[-1].content.rsplit(" ", 1)[1]
        self.calls += 1
        self.tries[name] += 1
        if name in self.bad or self.after < self.calls <= self.after + self.refused:
            raise Transient("upstream_error", "The model's server failed.")
        async for piece in super().generate(ask, prefix, call):
            yield piece


async def _whole(crew: Crew, task_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(encode_batch(await crew.store.items(task_id)))["items"]
    return items


async def test_an_outage_in_the_middle_costs_no_item_and_no_try_of_the_task(crew: Crew) -> None:
    task_id = await crew.submit("batch", batch(20))
    async with crew.working(backend=Flaky(refused=30, after=5)):
        task = await crew.reach(task_id, "completed", "failed")
    assert (task.state.value, task.text("warning"), task.num("errors")) == ("completed", "", 0)
    assert [item["result"] for item in await _whole(crew, task_id)] == [result(i) for i in range(20)]


async def test_an_outage_that_outlasts_the_run_is_tried_again_by_the_task(crew: Crew) -> None:
    """All that was not there in the first run is asked again in the second, and only that."""
    task_id = await crew.submit("batch", batch(6))
    backend = Flaky(refused=6 * 3)
    async with crew.working(backend=backend):
        task = await crew.reach(task_id, "completed", "failed")
    assert (task.state.value, task.text("warning"), task.num("errors")) == ("completed", "", 1)
    assert [item["result"] for item in await _whole(crew, task_id)] == [result(i) for i in range(6)]
    assert set(backend.tries.values()) == {4}


async def test_what_fails_to_the_last_try_fails_alone(crew: Crew) -> None:
    """Two of three answers never come: completed, with an error for each of them, after the task's own budget."""
    task_id = await crew.submit("batch", batch(3), max_attempts=2)
    backend = Flaky(bad=("0", "2"))
    async with crew.working(backend=backend):
        task = await crew.reach(task_id, "completed", "failed")
    assert (task.state.value, task.text("warning")) == ("completed", "2 of 3 items failed.")
    assert [item["ok"] for item in await _whole(crew, task_id)] == [False, True, False]
    assert (await _whole(crew, task_id))[0]["error"]["retryable"] is True
    assert backend.tries["1"] == 1, "what is set is never asked again"


async def test_with_a_single_try_everything_that_fails_is_set(crew: Crew) -> None:
    task_id = await crew.submit("batch", batch(5), max_attempts=1)
    async with crew.working(backend=Flaky(refused=10_000)):
        task = await crew.reach(task_id, "completed", "failed")
    assert (task.state.value, task.text("warning")) == ("completed", "5 of 5 items failed.")


async def test_while_nothing_is_answered_the_calls_of_a_batch_rest_together(crew: Crew) -> None:
    """Four at once that each try again for themselves would ask a server that is down all the time."""
    task_id = await crew.submit("batch", batch(40), max_attempts=1)
    backend = Flaky(refused=10_000)
    crew.kinds = load_kinds(crew.settings.model_copy(update={"backoff_base_s": 10, "backoff_cap_s": 10}))
    async with crew.working(backend=backend):
        await crew.reach(task_id, "processing")
        await asyncio.sleep(1.5)
        assert backend.calls <= 20
        await crew.store.cancel(task_id, "local", actor="me")


async def test_a_result_with_failed_items_is_not_what_the_next_submit_gets(crew: Crew) -> None:
    body = batch(2)
    task_id = await crew.submit("batch", body, max_attempts=1, cache_ms=3_600_000)
    async with crew.working(backend=Flaky(refused=10_000)):
        await crew.reach(task_id, "completed")
    new = NewTask(owner="local", kind="batch", input=body, unit="items", total=2, cache_ms=3_600_000)
    again, _ = await crew.store.create(new, actor="me")
    assert (again.id != task_id, again.state.value) == (True, "pending")
    async with crew.working():
        await crew.reach(again.id, "completed")
    third, _ = await crew.store.create(new, actor="me")
    assert third.id == again.id, "one without failures is"
