"""The real model: a worker dies in the middle of a sentence, and the sentence goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.up import Up
from tests.support.viewer import Viewer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = {"prompt": "Write a long story about a lighthouse keeper.", "temperature": 0.0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up() -> AsyncIterator[Up]:
    """One for all tests here: the model takes a moment to load. Its threads wait for each other, beside other tests
    for long: it gets one."""
    async with Up("--workers", "1", backend="local", local_threads=1) as made:
        yield made


async def test_real_text_in_many_chunks(up: Up) -> None:
    task = await up.api.submit({**ASK, "max_tokens": 60})
    viewer = await Viewer(up.url, task["task_id"]).follow(within=200)
    viewer.check()
    chunks = [event for event in viewer.events if event.name == "chunk"]
    assert len(chunks) > 10
    assert len(viewer.text.split()) > 30
    assert await up.api.text(task["task_id"]) == viewer.text


async def test_killed_in_the_middle_it_continues_from_exactly_there(up: Up) -> None:
    """G9: what viewers saw stays, character for character, and the rest follows without a seam."""
    task = await up.api.submit({**ASK, "max_tokens": 140})
    viewer = Viewer(up.url, task["task_id"])
    watching = asyncio.create_task(viewer.follow(within=200))
    seen: list[str] = []
    for length in (100, 300):
        await viewer.seen(length)
        seen.append(viewer.text)
        up.kill("unbroken worker")
    await watching
    viewer.check()
    assert viewer.rewinds == 0
    for prefix in seen:
        assert viewer.text.startswith(prefix)
    done = await up.api.task(task["task_id"])
    assert done["attempts"] == 3
    assert "\ufffd" not in viewer.text
