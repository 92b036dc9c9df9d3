"""kind `batch`: one instruction, many items, each its own model call. A result is set once, as it comes; a bad item
fails alone; what is set never runs again, and what was half done continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from unbroken.tasks import events
from unbroken.tasks.errors import Permanent, Transient, Unreached
from unbroken.tasks.inputs import BatchInput, Generation, Message
from unbroken.tasks.kind import Checkpoint, Item, Kind, Run, Update
from unbroken.worker.failures import item_error
from unbroken.worker.kinds.answer import Answer, conversation, unpack_ids
from unbroken.worker.pacing import between, retry_delay

OFFER_EVERY_S = 0.25  # how often the half-done items may be saved
RETRY_BASE_S, RETRY_CAP_S = 0.5, 30.0


def question(given: BatchInput, index: int) -> Generation:
    """The call for one item."""
    content = f"{given.instruction}\n\n{given.items[index]}"
    return conversation(given, [Message(role="user", content=content)])


class Batch(Kind):
    """parallel: calls at once. tries: of one item, before it fails alone."""

    name = "batch"
    unit = "items"
    continues = "text"
    Input = BatchInput

    def __init__(self, parallel: int = 4, tries: int = 3) -> None:
        self.parallel, self.tries = parallel, tries

    def total(self, data: BatchInput) -> int | None:
        """One for each item."""
        return len(data.items)

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """All items that are not set yet."""
        work = _Work(run, self.parallel, self.tries)
        try:
            async for item in work.items():
                if item is not None:
                    yield item
                    yield Checkpoint(work.state, milestone=True, late=True)
                yield Checkpoint(work.state, late=True)  # what the others have made by now can be saved at a stop
        finally:
            await work.close()


class _Work:
    """The calls of one run."""

    def __init__(self, run: Run, parallel: int, tries: int) -> None:
        self._run, self._tries = run, tries
        total = len(run.input.items)
        self._todo = [index for index in range(total) if index not in run.items]
        self._half = _half_done(run.state, set(self._todo))
        self._results: asyncio.Queue[Item] = asyncio.Queue()
        self._waiting = iter(self._todo)
        self._workers = [asyncio.create_task(self._one_by_one()) for _ in range(min(parallel, len(self._todo)))]

    async def items(self) -> AsyncIterator[Item | None]:
        """Each item as it finishes; None now and then, where half-done work may be saved."""
        left = len(self._todo)
        while left:
            try:
                async with asyncio.timeout(OFFER_EVERY_S):
                    item = await self._results.get()
            except TimeoutError:
                for worker in self._workers:
                    if worker.done():
                        worker.result()
                yield None
                continue
            left -= 1
            self._half.pop(item.index, None)
            yield item

    async def _one_by_one(self) -> None:
        for index in self._waiting:
            await self._results.put(await self._item(index))

    async def _item(self, index: int) -> Item:
        answer = self._half.setdefault(index, Answer())
        ask = question(self._run.input, index)
        for attempt in range(1, self._tries + 1):
            try:
                async with aclosing(answer.follow(self._run, ask, f"item-{index}")) as pieces:  # type: ignore[type-var]
                    async for _ in pieces:
                        pass
                return Item(index, result=events.clean(answer.text))
            except Permanent as error:
                return Item(index, error=item_error(error))
            except Unreached:
                raise  # no item's fault: the whole run waits for its next try
            except Transient as error:
                if attempt == self._tries:
                    return Item(index, error=item_error(error))
                wait = retry_delay(
                    attempt, base=RETRY_BASE_S, cap=RETRY_CAP_S, retry_after=error.retry_after_s, roll=between(0, 1)
                )
                await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def state(self) -> dict[str, Any]:
        """The half-done items."""
        half = {}
        for index, answer in self._half.items():
            if answer.count:
                half[index] = {"text": events.clean(answer.text), **await answer.state(slot=False)}
        return {"half": half}

    async def close(self) -> None:
        """Stop all calls; returns when they are closed."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)


def _half_done(state: Mapping[str, Any] | None, todo: set[int]) -> dict[int, Answer]:
    found = {}
    for index, kept in ((state or {}).get("half") or {}).items():
        if index in todo:
            answer = Answer(kept["text"], unpack_ids(kept.get("tokens")), int(kept.get("count", 0)))
            found[index] = answer
    return found
