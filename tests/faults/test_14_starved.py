"""G7 at its end: a worker that gets next to no processor."""

from __future__ import annotations

from tests.faults.ground import direct, leases_of, read_to_end, sound
from tests.support.api import scripted, story
from tests.support.cgroup import starving
from tests.support.nursery import QuickStack

TOKENS = 120


async def test_a_worker_with_a_tenth_of_a_processor_and_eight_busy_neighbours() -> None:
    """About one hundredth is left for it. Whether it still renews its lease in time or not: there is never a second
    holder beside it, and the text is exact."""
    async with QuickStack(workers=1, lease_s=3) as stack, direct(stack) as desk:
        ids = [(await stack.api.submit(scripted(seed=n, tokens=TOKENS, rate=30)))["task_id"] for n in range(3)]
        for task_id in ids:
            await stack.api.until_length(task_id, 50)
        await stack.start_worker()  # an idle one that would take over
        async with starving(stack.workers[0].pid, share=0.1, beside=8) as how:
            for n, task_id in enumerate(ids):
                await stack.api.until_state(task_id, "completed", within=90)
                assert (await read_to_end(stack, task_id, story(seed=n, tokens=TOKENS))).rewinds == 0
        for task_id in ids:
            task = await stack.api.task(task_id)
            assert await leases_of(desk, task_id) == task["attempts"] == 1 + task["crashes"]
            print(f"{how}: {task['attempts']} leases of 3 s")
        await sound(desk, ids)
