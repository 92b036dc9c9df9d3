"""Redis as a cluster of several nodes: everything finds the node that has our slot, also after it was replaced."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.ground import lines, read_to_end, sound
from tests.support.api import scripted, story
from tests.support.cluster import tcp, three_nodes
from tests.support.desk import Desk
from tests.support.nursery import QuickStack
from tests.support.valkey import Valkey
from tests.support.viewer import Viewer
from unbroken.tasks.connection import connect, translated
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.settings import Settings

TOKENS = 200


async def test_the_node_with_our_slot_is_replaced() -> None:
    """Everybody was told of a node that has nothing of ours. In the middle of four texts a replica takes over, and the
    node that was there before dies."""
    with three_nodes() as cluster:
        url = tcp(cluster.other)
        async with QuickStack(workers=2, valkey=cluster.other, redis_url=url) as stack:
            ids = [(await stack.api.submit(scripted(seed=n, tokens=TOKENS, rate=40)))["task_id"] for n in range(4)]
            viewers = [Viewer(stack.url, task_id) for task_id in ids]
            watching = asyncio.gather(*(viewer.follow(within=90) for viewer in viewers))
            await asyncio.gather(*(viewer.seen(200) for viewer in viewers))
            await asyncio.to_thread(cluster.fail_over)
            await watching
            for n, viewer in enumerate(viewers):
                viewer.check()
                assert (viewer.text, viewer.rewinds) == (story(seed=n, tokens=TOKENS), 0)
                task = await stack.api.task(viewer.task_id)
                assert (task["attempts"], task["errors"], task["crashes"]) == (1, 0, 0)
            late = (await stack.api.submit(scripted(tokens=50)))["task_id"]
            await stack.api.until_state(late, "completed")
            await read_to_end(stack, late, story(tokens=50))
            for process in (*stack.servers, *stack.workers):
                assert not lines(process.log, "Traceback"), process.tail()
            client = connect(url, name="test")
            await sound(Desk(client, Settings(redis_url=url, lease_s=2)), [*ids, late])
            await client.aclose()


@pytest.mark.parametrize(
    "refusal",
    ["CLUSTERDOWN The cluster is down", "MASTERDOWN Link is down", "TRYAGAIN Slots are moving", "ASK 11097 h:6379"],
)
async def test_what_a_cluster_refuses_for_a_moment_is_an_outage(valkey: Valkey, refusal: str) -> None:
    """Not an error of the server's own: whoever asked may ask again."""
    client = connect(valkey.url, name="test")
    script = f"return redis.error_reply('{refusal}')"
    with pytest.raises(StoreUnavailable), translated():
        await client.eval(script, 0)
    await client.aclose()
