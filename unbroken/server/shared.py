"""One answer for all who ask the same thing in the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
SHARED_S = 0.1  # how long an answer serves others; the ring has what came since


class Shared(Generic[T]):
    """Reads under way, and those that ended a moment ago."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[T]] = {}
        self.reads = 0
        """Really read."""
        self.asked = 0
        """Asked for."""

    async def get(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]], good: Callable[[T], bool]) -> T:
        """The answer of a read under way or of a moment ago, if it is good enough, or of a new one. Raises what the
        read raises."""
        self.asked += 1
        task = self._tasks.get(key)
        if task is not None and not task.done():
            answer = await asyncio.shield(task)
            if good(answer):
                return answer
            later = self._tasks.get(key)
            if later is not None and later is not task:
                return await asyncio.shield(later)  # begun after we came, so it is as good as one of our own
        elif task is not None and self._serves(task, good):
            return task.result()
        self.reads += 1
        task = self._tasks[key] = asyncio.create_task(read())
        task.add_done_callback(lambda done: self._later(key, done))
        return await asyncio.shield(task)

    @staticmethod
    def _serves(task: asyncio.Task[T], good: Callable[[T], bool]) -> bool:
        return not task.cancelled() and task.exception() is None and good(task.result())

    def _later(self, key: Hashable, done: asyncio.Task[T]) -> None:
        def forget() -> None:
            if self._tasks.get(key) is done:
                del self._tasks[key]

        failed = done.cancelled() or done.exception() is not None
        asyncio.get_running_loop().call_later(0 if failed else SHARED_S, forget)
