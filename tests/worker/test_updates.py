"""What a kind yields is looked at before it is written: one that yields nonsense harms only itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support.wait import PATIENCE_S
from tests.worker.crew import Crew, expected
from tests.worker.test_writer import Desk
from unbroken.tasks import keys
from unbroken.tasks.connection import Gathered
from unbroken.tasks.errors import LeaseLost
from unbroken.tasks.holder import Broken
from unbroken.tasks.kind import Checkpoint, Item, Kind, Progress, Rewind, Run, Text, Update
from unbroken.worker.door import TEXT_MAX, checked
from unbroken.worker.writer import Writer


class Number:
    """A whole number that is no int, as those of numpy are."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


NONSENSE: dict[str, Any] = {
    "a decimal done": Progress(Decimal(1), 10),  # type: ignore[arg-type]
    "no done": Progress(None, 10),  # type: ignore[arg-type]
    "an infinite done": Progress(float("inf"), 10),  # type: ignore[arg-type]
    "an enormous done": Progress(10**400, 10),
    "a decimal total": Progress(1, Decimal(10)),  # type: ignore[arg-type]
    "a total below nothing": Progress(1, -10),
    "a decimal mark": Text("x", mark=Decimal(1)),  # type: ignore[arg-type]
    "an enormous mark": Text("x", mark=2**70),
    "decimal tokens": Text("x", tokens=(Decimal(1),)),  # type: ignore[arg-type]
    "enormous tokens": Text("x", tokens=(2**70,)),
    "one token": Text("x", tokens=1),  # type: ignore[arg-type]
    "a decimal count": Text("x", count=Decimal(1)),  # type: ignore[arg-type]
    "bytes": Text(b"x"),  # type: ignore[arg-type]
    "no text": Text(None),  # type: ignore[arg-type]
    "a word as index": Item("a", result=1),  # type: ignore[arg-type]
    "half an index": Item(0.5, result=1),  # type: ignore[arg-type]
    "an index below nothing": Item(-1, result=1),
    "a result that is no JSON": Item(0, result=object()),
    "a word as error": Item(0, error="broken"),  # type: ignore[arg-type]
    "half a rewind": Rewind(0.5),  # type: ignore[arg-type]
    "nothing": None,
    "a word": "x",
}


class Nonsense(Kind):
    """Yields one of them, and would go on for long."""

    name = "nonsense"
    continues = "text"

    class Input(BaseModel):
        """Which."""

        what: str

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """Badly."""
        yield Text("hello ")
        yield NONSENSE[run.input.what]
        for _ in range(1_000):
            await asyncio.sleep(0.05)
            yield Text("more ")


class Silent(Kind):
    """A plain generator that yields nothing in its middle."""

    name = "silent"

    def run(self, run: Run) -> Any:
        """A bare yield is no end."""
        yield Text("begun")
        yield
        yield Text("never said")


async def test_a_bare_yield_is_not_taken_for_the_end(crew: Crew) -> None:
    crew.kinds = {"silent": Silent()}
    task_id = await crew.submit("silent", {}, max_attempts=1)
    async with crew.working():
        assert (await crew.reach(task_id, "completed", "failed")).state.value == "failed"


async def test_nonsense_ends_its_own_run_and_nobody_elses(crew: Crew) -> None:
    crew.kinds = {**crew.kinds, "nonsense": Nonsense()}
    bad = {what: await crew.submit("nonsense", {"what": what}, max_attempts=1) for what in NONSENSE}
    good = await crew.text(300, rate=300)
    async with crew.working(concurrency=len(bad) + 1, lease_s=10):
        await crew.reach(good, "completed")
        for what, task_id in bad.items():
            task = await crew.reach(task_id, "failed", "completed", "paused")
            assert (what, task.state.value, task.num("losses")) == (what, "failed", 0)
            assert json.loads(task.text("error"))["code"] == "unexpected"
    await crew.check_text(good, expected(300))
    assert (await crew.look(good)).num("attempts") == 1


class Untold(Kind):
    """One that cannot even begin."""

    name = "untold"

    class Input(BaseModel):
        """In which way."""

        how: str

    def total(self, data: Any) -> int | None:
        """Badly."""
        if data.how == "total raises":
            raise RuntimeError("no idea")
        return Decimal("1.5") if data.how == "half a total" else None  # type: ignore[return-value]

    def run(self, run: Run) -> Any:
        """Without a yield, so it is no generator."""
        if run.input.how == "run raises":
            raise RuntimeError("not today")
        return []


@pytest.mark.parametrize("how", ["total raises", "half a total", "run raises", "no generator"])
async def test_a_kind_that_cannot_begin_fails_and_is_not_lost(crew: Crew, how: str) -> None:
    crew.kinds = {"untold": Untold()}
    task_id = await crew.submit("untold", {"how": how}, max_attempts=1)
    async with crew.working():
        task = await crew.reach(task_id, "failed", "recovering", "paused")
    assert (task.state.value, task.num("losses")) == ("failed", 0)


def test_what_is_a_whole_number_becomes_an_int() -> None:
    assert checked(Progress(Number(3), Number(10))) == Progress(3, 10)  # type: ignore[arg-type]
    seen = checked(Text("x", tokens=[Number(1), True], mark=Number(2), count=Number(1)))  # type: ignore[arg-type]
    assert seen == Text("x", tokens=(1, 1), mark=2, count=1)
    assert isinstance(seen, Text)
    assert [type(token) for token in seen.tokens] == [int, int]
    assert checked(Item(Number(4), result="r")) == Item(4, result="r")  # type: ignore[arg-type]
    assert repr(checked(Rewind(False))) == "Rewind(offset=0)"


def test_what_is_fine_goes_through_as_it_is() -> None:
    updates: list[Update] = [Text("x", (1, 2), 2, 0), Text(""), Checkpoint({})]
    assert [checked(update) is update for update in updates] == [True] * 3
    for update in (Progress(1), Progress(0, 0), Item(0, error={"code": "x"}), Item(0), Rewind(0)):
        assert checked(update) == update


def test_what_no_command_could_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="characters"):
        checked(Text("x" * (TEXT_MAX + 1)))


# Behind the door: should something get through, the pump finds out whose it was.


@pytest.fixture
async def desk(crew: Crew) -> AsyncIterator[Desk]:
    """With a running pump."""
    desk = Desk(crew)
    yield desk
    desk.sending.cancel()


async def _stops_alone(desk: Desk, bad: tuple[str, Writer], good: tuple[str, Writer]) -> None:
    """What the good one has made arrives, the bad one is told, and nothing of it is written."""
    (bad_id, broken), (good_id, whole) = bad, good
    async with asyncio.timeout(PATIENCE_S):
        await whole.flush()
        with pytest.raises(Broken):
            await broken.flush()
    assert await desk.holder.text(good_id) == b"text"
    assert await desk.holder.text(bad_id) == b""


async def test_a_batch_that_cannot_be_made_stops_only_its_writer(desk: Desk) -> None:
    bad_id, bad = await desk.open()
    good_id, good = await desk.open()
    bad.add("x", (Decimal(1),))  # type: ignore[arg-type]
    good.add("text")
    await _stops_alone(desk, (bad_id, bad), (good_id, good))
    assert not desk.pump.trouble


async def test_a_batch_that_cannot_be_sent_stops_only_its_writer(desk: Desk) -> None:
    bad_id, bad = await desk.open()
    good_id, good = await desk.open()
    bad.done = Decimal(1)  # type: ignore[assignment]
    bad.add("x", count=0)
    good.add("text")
    await _stops_alone(desk, (bad_id, bad), (good_id, good))
    assert isinstance(desk.heard[-1], Broken)


async def test_a_call_that_cannot_be_sent_does_not_take_the_others_of_its_moment_with_it(crew: Crew) -> None:
    calls = Gathered(crew.redis)
    place = keys.key("bucket", "model")
    answers = await asyncio.gather(
        calls.call("take", place, 60, 60, 1),
        calls.call("take", place, 60, 60, Decimal(1)),  # type: ignore[arg-type]
        calls.call("take", place, 60, 60, 1),
        return_exceptions=True,
    )
    assert [answers[0], answers[2]] == [0, 0]
    assert isinstance(answers[1], Exception)


async def test_a_record_that_cannot_be_written_fails_its_task_and_is_not_called_lost(crew: Crew) -> None:
    """Its key for the text is of a wrong type: no worker will get further, and its owner hears why."""
    bad = await crew.text(2_000, rate=200)
    good = await crew.text(200, rate=200)
    async with crew.working():
        await crew.long(bad, 100)
        await crew.redis.delete(keys.key("text", bad))
        await crew.redis.rpush(keys.key("text", bad), "a list")
        task = await crew.reach(bad, "failed", "recovering", "paused")
        await crew.reach(good, "completed")
    assert (task.state.value, task.num("losses")) == ("failed", 0)
    assert json.loads(task.text("error"))["code"] == "internal"
    await crew.check_text(good, expected(200))


async def test_a_lost_lease_is_still_a_lost_lease(desk: Desk) -> None:
    _, writer = await desk.open()
    writer.fail(LeaseLost())
    writer.fail(Broken("later"))
    with pytest.raises(LeaseLost):
        await writer.flush()
