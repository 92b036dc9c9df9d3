"""kind `text` through a worker, from submit to done; read this first."""

from __future__ import annotations

from tests.worker.crew import Crew, expected


async def test_a_text_runs_to_its_end(crew: Crew) -> None:
    task_id = await crew.text(300)
    async with crew.working() as worker:
        task = await crew.reach(task_id, "completed")
        assert worker.claims == 1
    await crew.check_text(task_id, expected(300))
    assert (task.num("done"), task.num("total"), task.view()["progress"]) == (300, 300, 1.0)


async def test_the_first_token_goes_at_once_and_later_ones_are_grouped(crew: Crew) -> None:
    task_id = await crew.text(200, rate=400)
    async with crew.working(flush_ms=50):
        await crew.reach(task_id, "completed")
    chunks = [data for name, data in await crew.log(task_id) if name == "chunk"]
    first = expected(1)
    assert chunks[0]["text"] == first
    assert len(chunks) < 40, "tokens are grouped"
    await crew.check_text(task_id, expected(200))
