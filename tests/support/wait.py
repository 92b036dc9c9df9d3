"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar, overload

T = TypeVar("T")

PATIENCE_S = 60.0  # a safety limit, not a promise: a loaded two-core machine is slow


@overload
async def until(
    condition: Callable[[], Awaitable[T | None]], what: str, *, within: float = ..., every: float = ...
) -> T: ...
@overload
async def until(condition: Callable[[], T | None], what: str, *, within: float = ..., every: float = ...) -> T: ...
async def until(condition: Callable[[], Any], what: str, *, within: float = PATIENCE_S, every: float = 0.02) -> Any:
    """Ask `condition` (plain or async) again and again until it gives something true; returns that.

    Raises TimeoutError naming `what` and the last answer after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        answer = condition()
        value = await answer if isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:g} s for {what}; last answer: {value!r}")
        await asyncio.sleep(every)


def until_sync(condition: Callable[[], T], what: str, *, within: float = PATIENCE_S, every: float = 0.02) -> T:
    """`until` for code without an event loop."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:g} s for {what}; last answer: {value!r}")
        time.sleep(every)
    return value
