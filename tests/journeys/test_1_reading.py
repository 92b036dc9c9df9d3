"""A reader loses the connection, again and again, and still holds exactly the text."""

from __future__ import annotations

import asyncio
import random

import httpx
import pytest

from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import Stack
from tests.support.viewer import Viewer
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_twelve_viewers_who_each_lose_their_connection_a_dozen_times(shared: Stack) -> None:
    """G1, G2: the same text for everybody, byte for byte, and as the stored result."""
    task = await shared.api.submit(scripted(tokens=600, rate=150))
    viewers = [Viewer(shared.url, task["task_id"]) for _ in range(12)]
    await asyncio.gather(*(viewer.follow(cuts=12, chance=random.Random(n)) for n, viewer in enumerate(viewers)))
    text = story(tokens=600)
    for viewer in viewers:
        viewer.check()
        assert viewer.text == text
        assert viewer.rewinds == 0
        assert viewer.connections >= 12
    assert await shared.api.text(task["task_id"]) == text


async def test_a_viewer_who_is_there_before_the_start_sees_every_event_once() -> None:
    """Ids count 1, 2, 3, ...: nothing is folded away from somebody who is there when it happens."""
    async with QuickStack(workers=0) as stack:
        task = await stack.api.submit(scripted(tokens=200, rate=200))
        viewer = Viewer(stack.url, task["task_id"])
        watching = asyncio.create_task(viewer.follow())
        await until(lambda: viewer.connections == 1, "the viewer to be connected")
        await stack.start_worker()
        await watching
    viewer.check()
    assert [event.order[1] for event in viewer.events] == list(range(1, len(viewer.events) + 1))
    assert len([event for event in viewer.events if event.name == "chunk"]) > 10


async def test_a_late_viewer_gets_a_handful_of_frames(shared: Stack) -> None:
    """G3, and the folded replay: tens of thousands of tokens arrive as a few large chunks."""
    task = await shared.api.submit(scripted(tokens=20_000))
    await shared.api.until_state(task["task_id"], "completed")
    viewer = await Viewer(shared.url, task["task_id"]).follow()
    viewer.check()
    assert viewer.text == story(tokens=20_000)
    assert len(viewer.events) < 50


async def test_a_cursor_at_the_end_gets_204(shared: Stack) -> None:
    """A browser's EventSource reconnects after the end; 204 makes it stop."""
    task = await shared.api.submit(scripted(tokens=20))
    viewer = await Viewer(shared.url, task["task_id"]).follow()
    async with httpx.AsyncClient() as client:
        cursor = viewer.last_id or ""
        for headers, query in (
            ({"Last-Event-ID": cursor}, {}),
            ({}, {"last_event_id": cursor}),
            ({}, {"lastEventId": cursor}),
        ):
            answer = await client.get(viewer.path, headers=headers, params=query)
            assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("cursor", ["abc", "1", "1-", "-2", "1-2-3", "1-x", "01-2", "1-2 x", "1" * 10_000])
async def test_a_cursor_that_is_none_is_refused(shared: Stack, cursor: str) -> None:
    task = await shared.api.submit(scripted(tokens=20))
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{shared.url}/api/tasks/{task['task_id']}/stream", headers={"Last-Event-ID": cursor})
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("application/problem+json")


async def test_every_cursor_gets_exactly_what_follows_it(shared: Stack) -> None:
    """G2 at every place of the log."""
    task = await shared.api.submit(scripted(tokens=60, rate=300))
    whole = await Viewer(shared.url, task["task_id"]).follow()
    for at, event in enumerate(whole.events[:-1]):
        viewer = Viewer(shared.url, task["task_id"], last_id=event.id)
        viewer.text = "".join(e.data["text"] for e in whole.events[: at + 1] if e.name == "chunk")
        await viewer.follow()
        viewer.check()
        assert viewer.events[0].order > event.order
        assert viewer.rewinds == 0
