"""A person decides: pause, recover, cancel."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.api import scripted, story
from tests.support.processes import LEASE_S, Stack
from tests.support.viewer import Viewer

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_lost_worker_pauses_the_task_and_forty_clicks_recover_it_once(stack: Stack) -> None:
    """G8, G11: recovery=manual."""
    task = await stack.api.submit(scripted(tokens=300, rate=60), recovery="manual")
    task_id = task["task_id"]
    viewer = Viewer(stack.url, task_id)
    watching = asyncio.create_task(viewer.follow())
    await stack.api.until_length(task_id, 300)
    stack.kill_workers()
    paused = await stack.api.until_state(task_id, "paused", within=LEASE_S + 2 + 1)
    assert paused["reason"] == "worker_lost"
    await stack.start_worker()
    clicks = await asyncio.gather(*(stack.api.post(task_id, "recover") for _ in range(40)))
    assert {click.status_code for click in clicks} <= {200, 202}
    assert [click.status_code for click in clicks].count(202) == 1
    assert len({click.json()["recovery_id"] for click in clicks}) == 1
    await watching
    viewer.check()
    assert viewer.text == story(tokens=300)
    assert viewer.rewinds == 0
    assert ("paused", "worker_lost") in [
        (event.data["state"], event.data.get("reason")) for event in viewer.events if event.name == "status"
    ]


async def test_recover_says_why_not(stack: Stack) -> None:
    running = await stack.api.submit(scripted(tokens=1_000, rate=20))
    await stack.api.until_length(running["task_id"], 1)
    refused = await stack.api.post(running["task_id"], "recover")
    assert refused.status_code == 409
    assert refused.json()["detail"]
    await stack.api.post(running["task_id"], "cancel")
    completed = await stack.api.submit(scripted(tokens=5))
    await stack.api.until_state(completed["task_id"], "completed")
    refused = await stack.api.post(completed["task_id"], "recover")
    assert refused.status_code == 409
    assert "completed" in refused.json()["detail"]
    assert (await stack.api.post("s0-00000000000000000000000000", "recover")).status_code == 404


async def test_pause_keeps_every_character_and_recover_goes_on(stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=300, rate=60))
    viewer = Viewer(stack.url, task["task_id"])
    watching = asyncio.create_task(viewer.follow())
    await stack.api.until_length(task["task_id"], 300)
    assert (await stack.api.post(task["task_id"], "pause")).is_success
    paused = await stack.api.until_state(task["task_id"], "paused")
    assert paused["reason"] == "requested"
    assert paused["length"] == paused["checkpoint"]["offset"]
    assert (await stack.api.post(task["task_id"], "recover")).status_code == 202
    await watching
    viewer.check()
    assert viewer.text == story(tokens=300)
    assert viewer.rewinds == 0


async def test_cancel_wins_and_is_final(stack: Stack) -> None:
    """G12, in each state that a person can meet."""
    running = await stack.api.submit(scripted(tokens=1_000, rate=50))
    viewer = Viewer(stack.url, running["task_id"])
    watching = asyncio.create_task(viewer.follow())
    await stack.api.until_length(running["task_id"], 100)
    for _ in range(2):
        answer = await stack.api.post(running["task_id"], "cancel")
        assert answer.status_code == 200
        assert answer.json()["state"] == "cancelled"
    await watching
    assert viewer.end is not None
    assert viewer.end.name == "cancelled"
    for what in ("recover", "pause"):
        assert (await stack.api.post(running["task_id"], what)).status_code == 409


@pytest.mark.parametrize("times", [1, 2])
async def test_a_passing_error_is_tried_again_from_where_it_was(stack: Stack, times: int) -> None:
    task = await stack.api.submit(scripted(tokens=100, rate=400, fail="transient", fail_at=50, fail_times=times))
    viewer = await Viewer(stack.url, task["task_id"]).follow()
    viewer.check()
    assert viewer.text == story(tokens=100)
    assert viewer.rewinds == 0
    assert (await stack.api.task(task["task_id"]))["errors"] == times


async def test_a_lasting_error_fails_and_can_be_replayed(stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=100, fail="permanent", fail_at=50))
    viewer = await Viewer(stack.url, task["task_id"]).follow()
    assert viewer.end is not None
    assert viewer.end.name == "failed"
    assert viewer.end.data["error"]["message"]
    groups = (await stack.api.http.get("/api/dead-letters")).json()["groups"]
    assert [group["count"] for group in groups if group["examples"] == [task["task_id"]]] == [1]
    answers = await asyncio.gather(
        *(stack.api.http.post("/api/dead-letters/replay", json={"task_ids": [task["task_id"]]}) for _ in range(5))
    )
    assert all(answer.is_success for answer in answers)
    assert sum(answer.json()["replayed"] for answer in answers) == 1
    await stack.api.until_state(task["task_id"], "completed")
    assert await stack.api.text(task["task_id"]) == story(tokens=100)
