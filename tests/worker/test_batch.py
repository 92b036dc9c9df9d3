"""A batch through stops: each item once, and a bad one fails alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from tests.support.wait import until
from tests.worker.crew import Crew
from tests.worker.orders import batch, result
from tests.worker.test_stops import Watched
from unbroken.tasks import events
from unbroken.tasks.errors import Permanent
from unbroken.tasks.holder import Holder
from unbroken.tasks.kind import Checkpoint, Item, Kind, Run, Text, Update
from unbroken.tasks.lease import Lease
from unbroken.tasks.result import encode_batch
from unbroken.worker.backends.scripted import ScriptedBackend
from unbroken.worker.kinds.registry import load_kinds


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
    assert (backend.tries["3"], backend.tries["4"], backend.tries["5"]) == (1, 6, 2), "once more at the end"
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


class Beside(Kind):
    """Work goes on beside its generator, as a batch's calls do. It saves once, and then waits."""

    name = "beside"
    continues = "text"
    made = 0

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """The second run tells what the first one has saved."""
        if run.state is not None:
            yield Text(str(run.state["made"]))
            return
        yield Checkpoint(self._state, milestone=True, late=True)
        await asyncio.Event().wait()

    async def _state(self) -> dict[str, int]:
        return {"made": self.made}


async def test_what_is_made_after_a_save_is_saved_at_the_stop(crew: Crew) -> None:
    """G9: the last save may be a moment old, and the calls beside it go on; nothing of it is made twice."""
    kind = Beside()
    crew.kinds = {"beside": kind}
    task_id = await crew.submit("beside", {})
    async with crew.working():
        await until(partial(_saved, crew, task_id), "the first checkpoint")
        kind.made = 7
    async with crew.working():
        await crew.reach(task_id, "completed")
    assert await crew.store.text(task_id) == b"7"


class Crowd(Beside):
    """The same, and an item is finished meanwhile."""

    name = "crowd"
    unit = "items"

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """The second run gives what the first one has saved as its second item."""
        if run.state is not None:
            yield Item(1, run.state["made"])
            return
        yield Checkpoint(self._state, late=True)
        yield Item(0, "first")
        await asyncio.Event().wait()


async def test_a_stop_that_meets_a_slow_item_saves_what_the_others_have_made(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind's next offer does not come in time, since the item is still being set: the one before it holds."""
    kind, set_item, asked = Crowd(), Holder.item, asyncio.Event()

    async def slowly(self: Holder, lease: Lease, *rest: Any) -> tuple[bool, str]:
        asked.set()
        await asyncio.sleep(0.6)  # longer than a stop waits for an offer
        return await set_item(self, lease, *rest)

    monkeypatch.setattr(Holder, "item", slowly)
    crew.kinds = {"crowd": kind}
    task_id = await crew.submit("crowd", {})
    async with crew.working():
        await asked.wait()
        kind.made = 7
    async with crew.working():
        await crew.reach(task_id, "completed")
    items = json.loads(encode_batch(await crew.store.items(task_id)))["items"]
    assert [item["result"] for item in items] == ["first", 7]


async def _saved(crew: Crew, task_id: str) -> bool:
    return (await crew.look(task_id)).checkpoint is not None
