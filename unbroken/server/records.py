"""Records read by many requests at once: those that ask while a read is under way share the next one.

Two thousand viewers who come back in the same second are then a few round trips instead of two thousand."""

from __future__ import annotations

import asyncio

from unbroken.tasks import keys
from unbroken.tasks.errors import NotFound
from unbroken.tasks.record import Task
from unbroken.tasks.store import Store

BATCH = 250  # records of one round trip
READERS = 2  # round trips at once


class Records:
    """A door to `Store.get` for reading."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: dict[str, list[asyncio.Future[Task | None]]] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._reading = 0
        """Readers that will look at what is asked once more. One that has looked for the last time is not among them,
        although its task may not be over yet: what is asked then would wait for nobody."""

    async def get(self, task_id: str, owner: str) -> Task:
        """The task as it was at some moment after this call began. Raises NotFound (also for a foreign one),
        StoreUnavailable."""
        if not keys.is_task_id(task_id):
            raise NotFound(task_id)
        answer: asyncio.Future[Task | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(task_id, []).append(answer)
        if self._reading < READERS:
            self._reading += 1
            reader = asyncio.create_task(self._read())
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
        task = await answer
        if task is None or task.owner != owner:
            raise NotFound(task_id)
        return task

    async def _read(self) -> None:
        try:
            await self._read_all()
        finally:
            self._reading -= 1

    async def _read_all(self) -> None:
        while self._asked:
            some = {task_id: self._asked.pop(task_id) for task_id in list(self._asked)[:BATCH]}
            try:
                found = await self._store.read(list(some))
            except BaseException as error:
                self._fail(some, error)
                if not isinstance(error, Exception):
                    raise
                continue
            for waiting, task in zip(some.values(), found, strict=True):
                for answer in waiting:
                    if not answer.done():
                        answer.set_result(task)

    @staticmethod
    def _fail(some: dict[str, list[asyncio.Future[Task | None]]], error: BaseException) -> None:
        for answer in (answer for waiting in some.values() for answer in waiting):
            if answer.done():
                continue
            if isinstance(error, Exception):
                answer.set_exception(error)
            else:
                answer.cancel()
