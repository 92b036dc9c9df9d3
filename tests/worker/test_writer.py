"""Text on its way into the log: halves of pairs, marks and ids, cuts, rewinds, and what is written with the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.desk import OWNER
from tests.worker.crew import Crew
from unbroken.tasks import events
from unbroken.tasks.connection import Calls
from unbroken.tasks.errors import LeaseLost
from unbroken.tasks.holder import Holder
from unbroken.tasks.kind import Checkpoint, Item, Kind, Progress, Rewind, Run, Text, Update
from unbroken.tasks.lease import Claimed, Last
from unbroken.worker.pump import Pump
from unbroken.worker.writer import Writer


class Desk:
    """One claimed task and its writer."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.holder = Holder(Calls(crew.redis), crew.settings, "w")
        self.pump = Pump(self.holder)
        self.heard: list[Any] = []
        self.sending = asyncio.create_task(self.pump.run())

    async def open(self) -> tuple[str, Writer]:
        """Submit, claim, write."""
        task_id = await self.crew.text(100)
        claimed = await self.holder.claim(self.holder.new_token())
        assert isinstance(claimed, Claimed)
        text = await self.holder.text(task_id)
        writer = Writer(claimed, self.holder, self.pump, text, on_wish=self.heard.append, on_error=self.heard.append)
        return task_id, writer


@pytest.fixture
async def desk(crew: Crew) -> AsyncIterator[Desk]:
    """With a running pump."""
    desk = Desk(crew)
    yield desk
    desk.sending.cancel()


async def test_halves_of_a_pair_are_joined_and_lone_ones_replaced(desk: Desk, crew: Crew) -> None:
    task_id, writer = await desk.open()
    for piece in ("a", "\ud83c", "\udf0a", "b", "\udc00", "c", "\ud83c", "x", "\x00\r\n"):
        writer.add(piece)
        await writer.flush()
    writer.add("\ud83c")
    last = await writer.settle()
    await desk.holder.complete(
        writer.lease, last, sha256=writer.digest, size=writer.bytes, result_length=writer.chars, done=1, total=1
    )
    await crew.check_text(task_id, "a🌊b\ufffdc\ufffdx\x00\r\n\ufffd")


async def test_ids_and_marks_come_back_as_they_were_written(desk: Desk) -> None:
    task_id, writer = await desk.open()
    writer.add("one ", (1,), 0)
    writer.add("two ", (2, 3), 0)
    writer.add("", (4,), 0)
    writer.add("three ", (5,), 1)
    writer.add("four", (), 1)
    writer.add("x" * 10_000, (9,), 2)
    await writer.flush()
    tail = await desk.holder.tail(task_id, "0-0")
    seen = [(chunk.offset, chunk.text[:10], chunk.tokens, chunk.mark) for chunk in tail]
    assert seen[0] == (0, "one two ", (1, 2, 3, 4), 0)
    assert seen[1] == (8, "three four", (), 1), "one piece without ids: none are claimed"
    assert [(o, t, m) for o, _, t, m in seen[2:]] == [(18, (), 2), (18 + 4_096, (), 2), (18 + 8_192, (), 2)]


async def test_a_pause_wish_is_heard_and_a_lost_lease_ends_it(desk: Desk, crew: Crew) -> None:
    task_id, writer = await desk.open()
    await crew.store.pause(task_id, OWNER, actor="me")
    writer.add("text")
    await writer.flush()
    assert desk.heard == ["pause"]
    await crew.store.cancel(task_id, OWNER, actor="me")
    before = await crew.log(task_id)
    writer.add("more")
    with pytest.raises(LeaseLost):
        await writer.flush()
    assert isinstance(desk.heard[-1], LeaseLost)
    with pytest.raises(LeaseLost):
        await writer.settle()
    assert await crew.log(task_id) == before


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.text(max_size=30) | st.sampled_from(["\ud83c", "\udf0a", "é" * 5_000, "🌊"])),
        st.tuples(st.just("rewind"), st.floats(0, 1)),
        st.tuples(st.just("flush"), st.none()),
        st.tuples(st.just("yield"), st.none()),
    ),
    max_size=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_any_sequence_folds_to_the_stored_text(steps: list[tuple[str, Any]], valkey_url: str) -> None:
    """G1 at the writer: whatever is added and taken back, viewers, store and digest agree."""
    asyncio.run(_play(steps, valkey_url))


async def _play(steps: list[tuple[str, Any]], url: str) -> None:
    from redis.asyncio import Redis

    from unbroken.tasks.settings import Settings

    client = Redis.from_url(url)
    crew = Crew(client, Settings(redis_url=url, flush_ms=1))
    desk = Desk(crew)
    try:
        task_id, writer = await desk.open()
        want = ""
        for step, value in steps:
            if step == "add":
                writer.add(value)
                want += value
            elif step == "rewind":
                want = events.clean(want) if want and not "\ud800" <= want[-1] <= "\udbff" else events.clean(want[:-1])
                offset = int(len(want) * value)
                want = want[:offset]
                await writer.rewind(offset)
            elif step == "flush":
                await writer.flush()
            else:
                await asyncio.sleep(0.002)
        last: Last = await writer.settle()
        await desk.holder.complete(
            writer.lease, last, sha256=writer.digest, size=writer.bytes, result_length=writer.chars, done=1, total=1
        )
        await crew.check_text(task_id, events.clean(want))
    finally:
        desk.sending.cancel()
        await client.aclose()


class Everything(Kind):
    """All sorts of updates."""

    name = "everything"
    unit = "steps"

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """One of each."""
        yield Progress(1, 4)
        yield Text("hello wörld")
        yield Rewind(6)
        yield Text("there")
        yield Item(0, result={"a": [1, None]})
        yield Checkpoint({"x": 1}, milestone=True)
        yield Progress(2, 4)


async def test_a_kind_may_yield_all_sorts_of_updates(crew: Crew) -> None:
    crew.kinds = {"everything": Everything()}
    task_id = await crew.submit("everything", {}, total=4)
    async with crew.working():
        await crew.reach(task_id, "completed")
    await crew.check_text(task_id, "hello there")
    names = [name for name, _ in await crew.log(task_id)]
    assert names.count("item") == 1
    assert names.count("checkpoint") == 1
    assert "progress" in names


async def test_a_rewind_beyond_the_text_is_the_kinds_mistake(crew: Crew) -> None:
    class Odd(Kind):
        name = "odd"

        async def run(self, run: Run) -> AsyncIterator[Update]:
            yield Rewind(5)

    crew.kinds = {"odd": Odd()}
    task_id = await crew.submit("odd", {}, max_attempts=1)
    async with crew.working():
        task = await crew.reach(task_id, "failed")
    assert "a rewind to 5" in task.text("detail")
