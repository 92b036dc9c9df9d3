"""Viewers end with the same counts as the record, also when the answer is shorter than was allowed."""

from __future__ import annotations

import pytest

from tests.support.upstream import Plan, running_upstream
from tests.worker.crew import Crew
from unbroken.worker.backends.openai import OpenAIBackend


@pytest.mark.parametrize("given", [{"max_tokens": 400}, {}])
async def test_the_last_progress_is_the_whole(crew: Crew, given: dict[str, int]) -> None:
    with running_upstream() as upstream:
        upstream.answer(Plan("One two three."))
        task_id = await crew.submit("text", {"prompt": "Hi", **given})
        async with crew.working(backend=OpenAIBackend(f"{upstream.url}/v1")):
            task = await crew.reach(task_id, "completed")
    view = task.view()
    log = await crew.log(task_id)
    assert [name for name, _ in log][-1] == "done"
    told = [data for name, data in log if name == "progress"][-1]
    assert told == {name: view[name] for name in ("progress", "done", "total", "unit")}
    assert (told["progress"], told["done"]) == (1, told["total"])
