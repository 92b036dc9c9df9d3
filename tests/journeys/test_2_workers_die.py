"""Workers die and are stopped; readers do not notice more than a pause."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.api import scripted, story
from tests.support.processes import LEASE_S, Stack
from tests.support.viewer import Viewer

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_every_worker_is_killed_three_times(stack: Stack) -> None:
    """G1, G8, G9: the text is that of an undisturbed run, and no viewer is ever rewound."""
    task = await stack.api.submit(scripted(tokens=300, rate=100))
    viewers = [Viewer(stack.url, task["task_id"]) for _ in range(3)]
    watching = asyncio.gather(*(viewer.follow(within=100) for viewer in viewers))
    for times in range(1, 4):
        await stack.api.until_length(task["task_id"], times * 500)
        stack.kill_workers()
        await stack.start_worker()
    await watching
    text = story(tokens=300)
    for viewer in viewers:
        viewer.check()
        assert viewer.text == text
        assert viewer.rewinds == 0
    done = await stack.api.task(task["task_id"])
    assert done["attempts"] == 4
    assert done["errors"] == 0


async def test_a_worker_that_is_asked_to_stop_hands_over(stack: Stack) -> None:
    """SIGTERM costs nothing: no attempt of the error budget, no token twice, and no wait for the lease."""
    task = await stack.api.submit(scripted(tokens=300, rate=100))
    viewer = Viewer(stack.url, task["task_id"])
    watching = asyncio.create_task(viewer.follow())
    for times in range(1, 4):
        await stack.api.until_length(task["task_id"], times * 400)
        old = stack.workers.pop()
        await stack.start_worker()
        assert await old.stop() == 0
    await watching
    viewer.check()
    assert viewer.text == story(tokens=300)
    assert viewer.rewinds == 0
    done = await stack.api.task(task["task_id"])
    assert (done["errors"], done["crashes"]) == (0, 0)


async def test_a_frozen_worker_that_wakes_up_changes_nothing(stack: Stack) -> None:
    """G6: SIGSTOP past the lease, another finishes the task, SIGCONT."""
    task = await stack.api.submit(scripted(tokens=200, rate=60))
    viewer = Viewer(stack.url, task["task_id"])
    watching = asyncio.create_task(viewer.follow())
    await stack.api.until_length(task["task_id"], 200)
    zombie = stack.workers[0]
    zombie.freeze()
    await stack.start_worker()
    await watching
    viewer.check()
    before = await stack.api.task(task["task_id"])
    zombie.thaw()
    # It is a good worker afterwards: it takes the next task.
    await stack.workers.pop().stop()
    another = await stack.api.submit(scripted(tokens=10, seed=8))
    await stack.api.until_state(another["task_id"], "completed")
    assert await stack.api.task(task["task_id"]) == before
    assert viewer.text == story(tokens=200)
    assert viewer.rewinds == 0


async def test_the_server_restarts_under_its_viewers(stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=400, rate=100))
    viewers = [Viewer(stack.url, task["task_id"]) for _ in range(5)]
    watching = asyncio.gather(*(viewer.follow() for viewer in viewers))
    for times in (1, 2):
        await stack.api.until_length(task["task_id"], times * 800)
        stack.servers[0].kill()
        await stack.start_server(0)
    await watching
    for viewer in viewers:
        viewer.check()
        assert viewer.text == story(tokens=400)
        assert viewer.rewinds == 0


async def test_the_database_restarts_under_everything(stack: Stack) -> None:
    """G15: kill -9 for Valkey, and it comes back with its append-only file."""
    task = await stack.api.submit(scripted(tokens=400, rate=100))
    viewer = Viewer(stack.url, task["task_id"])
    watching = asyncio.create_task(viewer.follow())
    await stack.api.until_length(task["task_id"], 600)
    await asyncio.to_thread(stack.valkey.kill)
    await asyncio.to_thread(stack.valkey.start)
    await watching
    viewer.check()
    assert viewer.text == story(tokens=400)
    assert viewer.rewinds == 0


async def test_a_task_killed_while_nobody_else_is_there_waits_for_a_worker(stack: Stack) -> None:
    """G8: it leaves `processing` within its lease and two seconds (and a little for this test's own polling)."""
    task = await stack.api.submit(scripted(tokens=200, rate=60))
    await stack.api.until_length(task["task_id"], 200)
    stack.kill_workers()
    await stack.api.until_state(task["task_id"], "recovering", within=LEASE_S + 2 + 1)
    await stack.start_worker()
    done = await stack.api.until_state(task["task_id"], "completed")
    assert done["crashes"] <= 1
    assert await stack.api.text(task["task_id"]) == story(tokens=200)
