"""Every measurement at its smallest size: that it measures what it says, never how quick that was."""

from __future__ import annotations

import pytest

from tests.bench import checkpoints, queues, replays, rig, stream
from tests.bench.measure import Table
from tests.support.nursery import QuickStack


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same processes, forked from one that has imported everything."""
    monkeypatch.setattr(rig, "Stack", QuickStack)


async def test_many_viewers_get_every_event_once() -> None:
    """The frames that the viewers counted are those that were appended, times the viewers."""
    base, mine = await stream.crowd(stream.TINY, 20, (100,), steady=16)
    for crowd in (base, mine):
        assert crowd.steady is not None
        assert crowd.steady["frames"] % 20 == 0
        assert crowd.steady["delay"]["count"] == crowd.steady["frames"] > 0
        assert crowd.steady["jumps"] == 0


async def test_each_task_has_its_viewer() -> None:
    """20 events a second and ten tasks."""
    seen = await stream.many_tasks(stream.TINY)
    assert 30 <= seen["frames"] <= 70
    assert seen["frames"] == seen["delay"]["count"]


async def test_small_crowd_idle_viewers_and_stalled_ones() -> None:
    """Counts only: nobody lost anything beside viewers that never read."""
    seen = await stream.small_crowd(stream.TINY, viewers=10)
    assert seen["frames"] == seen["delay"]["count"] > 0
    _, connects = await stream.idle(stream.TINY)
    assert connects > 0
    seen = await stream.stalled(stream.TINY, readers=10)
    assert seen["frames"] % 10 == 0
    assert seen["alive"] == 30


async def test_late_viewers_get_all_in_a_few_frames() -> None:
    """1,500 events, folded."""
    found = await replays.late(replays.TINY)
    for viewers, seen in found.items():
        assert seen["done"] == viewers
        assert viewers <= seen["frames"] < 100 * viewers


async def test_everybody_comes_back_from_a_cursor_of_its_own() -> None:
    """Nothing lost, nothing doubled."""
    seen = await replays.storm(replays.TINY)
    assert seen["done"] == replays.TINY.back
    assert seen["doubled"] == seen["holes"] == 0


async def test_queue() -> None:
    """Starts are seen, all jobs are done, the list is complete."""
    assert len(await queues.first_event(queues.TINY)) == queues.TINY.starts
    assert (await queues.through(queues.TINY))["Unbroken"] > 0
    assert len(await queues.records(150, pages=3)) == 3


async def test_checkpoints_are_saved_where_they_are_on() -> None:
    """Off means none."""
    for off, on in (await checkpoints.cost(checkpoints.TINY)).values():
        assert off.saved == 0
        assert on.saved > 0
    large = await checkpoints.large(checkpoints.TINY)
    assert large["stored"] >= checkpoints.TINY.mib * checkpoints.MIB


def test_tables_are_markdown() -> None:
    """What is printed can be put into a page."""
    table = Table("A title", ("a", "b"))
    table.add("1", "2")
    table.show()
