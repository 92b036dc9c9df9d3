"""A store and a worker's door on a real server, and a clock that tests may move."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from tests.support.desk import Desk
from unbroken.tasks.settings import Settings


@pytest.fixture
async def desk(redis: Redis, valkey_url: str) -> Desk:
    """Everything at Redis' own clock."""
    settings = Settings(redis_url=valkey_url, lease_s=2)
    return Desk(redis, settings)


@pytest.fixture
async def timed(redis: Redis, valkey_url: str) -> Desk:
    """The same, where time stands still until the test moves it."""
    desk = Desk(redis, Settings(redis_url=valkey_url, lease_s=2), clock="ub:{s0}:clock")
    await desk.set_time(1_767_225_600_000)
    return desk
