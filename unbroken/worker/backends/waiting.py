"""Waiting for something that is still starting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from unbroken.tasks.errors import Transient

T = TypeVar("T")


async def until(attempt: Callable[[], Awaitable[T]], limit_s: float, *, every_s: float = 0.2) -> T:
    """Repeat `attempt` while it raises Transient, for at most `limit_s` seconds; then raise its last
    error."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while True:
        try:
            return await attempt()
        except Transient:
            if loop.time() + every_s > deadline:
                raise
        await asyncio.sleep(every_s)
