"""The heartbeat's thread: it renews, it reports, and nothing ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.desk import OWNER
from tests.support.wait import until
from tests.worker.crew import Crew
from unbroken.tasks import keys
from unbroken.tasks.connection import Calls
from unbroken.tasks.errors import LeaseLost
from unbroken.tasks.holder import Holder
from unbroken.tasks.inputs import Generation, Message
from unbroken.tasks.kind import Prefix
from unbroken.tasks.lease import Claimed
from unbroken.worker.context import ModelLimits
from unbroken.worker.heartbeat import Heart
from unbroken.worker.pump import Pump


@pytest.fixture
async def heart(crew: Crew) -> AsyncIterator[Heart]:
    """A quick one."""
    settings = crew.settings.model_copy(update={"lease_s": 0.6})
    heart = Heart(settings, name="test", loop=asyncio.get_running_loop())
    heart.start()
    yield heart
    heart.stop()


async def _claimed(crew: Crew) -> Claimed:
    await crew.text(10)
    holder = Holder(Calls(crew.redis), crew.settings, "w")
    claimed = await holder.claim(holder.new_token())
    assert isinstance(claimed, Claimed)
    return claimed


async def test_it_renews_until_it_is_told_not_to(crew: Crew, heart: Heart) -> None:
    lease = (await _claimed(crew)).lease
    heart.add(lease, lambda _: None)

    async def till() -> float:
        return float(await crew.redis.zscore(keys.key("leases"), lease.task_id) or 0)

    first = await till()
    await until(lambda: heart.pulse.beats >= 3, "three beats")
    second = await till()
    assert second != first
    heart.remove(lease)
    beats = heart.pulse.beats
    await asyncio.sleep(0.5)
    assert heart.pulse.beats <= beats + 1


async def test_wishes_and_losses_are_told_on_the_loop(crew: Crew, heart: Heart) -> None:
    lease = (await _claimed(crew)).lease
    heard: list[object] = []
    heart.add(lease, heard.append)
    await crew.store.pause(lease.task_id, OWNER, actor="me")
    await until(lambda: "pause" in heard, "the wish")
    await crew.store.cancel(lease.task_id, OWNER, actor="me")
    lost = await until(lambda: [h for h in heard if isinstance(h, LeaseLost)], "the loss")
    assert lost[0].reason == "cancelled"
    beats = heart.pulse.beats
    await asyncio.sleep(0.4)
    assert heart.pulse.beats <= beats + 1, "a lost lease is not beaten any more"


async def test_it_survives_everything_that_redis_does(crew: Crew, heart: Heart) -> None:
    lease = (await _claimed(crew)).lease
    heard: list[object] = []
    heart.add(lease, heard.append)
    await until(lambda: heart.pulse.beats, "a beat")
    for _ in range(5):
        await crew.redis.script_flush()
        clients = await crew.redis.client_list()
        for client in clients:
            if client["name"] == "test-heart":
                await crew.redis.client_kill_filter(_id=client["id"])
        beats = heart.pulse.beats
        await until(lambda beats=beats: heart.pulse.beats > beats, "it to beat again")  # type: ignore[misc]
    assert heard == []


def _beyond(heart: Heart, beats: int) -> bool:
    return heart.pulse.beats > beats


async def test_a_strange_reply_does_not_end_it(crew: Crew, heart: Heart) -> None:
    lease = (await _claimed(crew)).lease
    heart.add(lease, lambda _: None)
    await crew.redis.delete(lease.key)
    await crew.redis.set(lease.key, "of another type")
    await until(lambda: heart.pulse.errors, "the strange reply")
    beats = heart.pulse.beats
    await until(lambda: heart.pulse.beats > beats, "it to go on")


# shared limits of a model


async def test_requests_towards_a_model_are_limited_over_all_workers(crew: Crew) -> None:
    settings = crew.settings.model_copy(update={"model_requests_per_minute": 120})
    ask = Generation(messages=[Message(role="user", content="x")])
    pumps = [Pump(Holder(Calls(crew.redis), settings, f"w{i}")) for i in range(3)]
    limits = [ModelLimits(Calls(crew.redis), pump, settings) for pump in pumps]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(limits[i % 3].wait(ask, Prefix()) for i in range(123)))
    assert loop.time() - began > 1.4, "a minute's worth at once, then two a second"


async def test_another_model_has_its_own_bucket(crew: Crew) -> None:
    settings = crew.settings.model_copy(update={"model_tokens_per_minute": 1_000})
    limits = ModelLimits(Calls(crew.redis), Pump(Holder(Calls(crew.redis), settings, "w")), settings)
    ask = Generation(messages=[Message(role="user", content="x" * 400)], max_tokens=900)
    await limits.wait(ask, Prefix())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await limits.wait(ask, Prefix())
    await limits.wait(ask.model_copy(update={"model": "other"}), Prefix())
