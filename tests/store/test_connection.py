"""The connections below the store: what redis-py's own would do differently."""

from __future__ import annotations

import asyncio

import pytest

from unbroken.tasks.connection import Calls, connect

TICKS = 40  # of the event loop; a call takes fewer


@pytest.mark.parametrize("after", range(TICKS))
async def test_a_cancelled_caller_ends_wherever_its_call_stands(valkey_url: str, after: int) -> None:
    """Up to Python 3.11 asyncio.wait_for forgets a cancel that comes in the moment in which its work is done. A loop of
    the server that calls Redis again and again then never ends, and the server with it."""
    redis = connect(valkey_url, name="test")
    calls = Calls(redis)
    await redis.ping()

    async def for_ever() -> None:
        while True:
            await calls.call("reap", "ub:{s0}:leases", 2_000, 100)
            await asyncio.sleep(0)

    caller = asyncio.create_task(for_ever())
    for _ in range(after):
        await asyncio.sleep(0)
    caller.cancel()
    done, _ = await asyncio.wait([caller], timeout=5)
    try:
        assert done, "the cancel was lost"
        assert caller.cancelled()
    finally:
        while not caller.done():
            caller.cancel()
            await asyncio.sleep(0.001)
        await redis.aclose()
