"""kind `batch`: one instruction, many items, each its own model call. A result is set once, as it comes; a bad item
fails alone; what is set never runs again, and what was half done continues.

A model that fails for a while is told from an item that is bad: what failed is tried once more when all the others are
through, and fails for good only when the model answered others after that, or at the task's last try. What is left goes
into the next run of the task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
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
REST_CAP_S = 5.0  # how long all calls rest at most between two tries while the model answers none


def question(given: BatchInput, index: int) -> Generation:
    """The call for one item."""
    content = f"{given.instruction}\n\n{given.items[index]}"
    return conversation(given, [Message(role="user", content=content)])


class Batch(Kind):
    """parallel: calls at once. tries: of one item in a row. base_s, cap_s: of the pauses between them."""

    name = "batch"
    unit = "items"
    continues = "text"
    Input = BatchInput

    def __init__(
        self, parallel: int = 4, tries: int = 3, *, base_s: float = RETRY_BASE_S, cap_s: float = RETRY_CAP_S
    ) -> None:
        self.parallel, self.tries = parallel, tries
        self.base_s, self.cap_s = base_s, min(cap_s, RETRY_CAP_S)

    def total(self, data: BatchInput) -> int | None:
        """One for each item."""
        return len(data.items)

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """All items that are not set yet."""
        work = _Work(run, self)
        try:
            async for item in work.items():
                if item is not None:
                    yield item
                    yield Checkpoint(work.state, milestone=True, late=True)
                yield Checkpoint(work.state, late=True)  # what the others have made by now can be saved at a stop
        finally:
            await work.close()


@dataclass(slots=True)
class _Failure:
    """An item whose tries are used up. since: when its first one failed."""

    since: float
    error: Transient


class _Work:
    """The calls of one run."""

    def __init__(self, run: Run, kind: Batch) -> None:
        self._run, self._kind = run, kind
        self._loop = asyncio.get_running_loop()
        total = len(run.input.items)
        self._todo = [index for index in range(total) if index not in run.items]
        self._half = _half_done(run.state, set(self._todo))
        self._results: asyncio.Queue[Item | None] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._waiting: Iterator[int] = iter(())
        self._left = 0
        self._failed: dict[int, _Failure] = {}
        self._answered = 0.0  # when the newest of the calls that were answered began
        self._misses = 0  # calls that failed since one was answered
        self._rest_till = 0.0
        self._again_at = 0.0

    async def items(self) -> AsyncIterator[Item | None]:
        """Each item as it finishes; None now and then, where half-done work may be saved. Raises Transient when some
        are left to the task's next run."""
        self._start(self._todo)
        again: list[int] = []
        while self._left or (self._failed and self._answered and not again):
            if not self._left:
                again, self._again_at = list(self._failed), self._loop.time()
                self._start(again)
            try:
                async with asyncio.timeout(OFFER_EVERY_S):
                    item = await self._results.get()
            except TimeoutError:
                for worker in self._workers:
                    if worker.done():
                        worker.result()
                yield None
                continue
            self._left -= 1
            if item is not None:
                yield self._set(item)
        for index, failure in sorted(self._failed.items()):
            if self._run.last_try or self._is_bad(failure, alone=len(again) == 1):
                yield self._set(Item(index, error=item_error(failure.error)))
        if self._failed:
            raise next(reversed(self._failed.values())).error

    def _is_bad(self, failure: _Failure, *, alone: bool) -> bool:
        """Did the model answer others after this item failed? Several that fail to the end, and nothing else meanwhile,
        may be another outage."""
        return failure.since < self._answered and (alone or self._answered >= self._again_at)

    def _start(self, todo: list[int]) -> None:
        self._left, self._waiting = len(todo), iter(todo)
        self._workers = [asyncio.create_task(self._one_by_one()) for _ in range(min(self._kind.parallel, len(todo)))]

    def _set(self, item: Item) -> Item:
        self._half.pop(item.index, None)
        self._failed.pop(item.index, None)
        return item

    async def _one_by_one(self) -> None:
        for index in self._waiting:
            await self._results.put(await self._item(index))

    async def _item(self, index: int) -> Item | None:
        answer = self._half.setdefault(index, Answer())
        ask = question(self._run.input, index)
        for attempt in range(1, self._kind.tries + 1):
            await self._rested()
            began = self._loop.time()
            try:
                async with aclosing(answer.follow(self._run, ask, f"item-{index}")) as pieces:  # type: ignore[type-var]
                    async for _ in pieces:
                        pass
                self._was_answered(began)
                return Item(index, result=events.clean(answer.text))
            except Permanent as error:
                self._was_answered(began)
                return Item(index, error=item_error(error))
            except Unreached:
                raise  # no item's fault: the whole run waits for its next try
            except Transient as error:
                self._was_missed(index, error)
                if attempt < self._kind.tries:
                    await asyncio.sleep(self._pause(attempt, self._kind.cap_s, error))
        return None

    def _pause(self, tries: int, cap_s: float, error: Transient) -> float:
        base, wanted = self._kind.base_s, error.retry_after_s
        return retry_delay(tries, base=base, cap=cap_s, retry_after=wanted, roll=between(0.2, 1))

    def _was_answered(self, began: float) -> None:
        self._answered = max(self._answered, began)
        self._misses, self._rest_till = 0, 0.0

    def _was_missed(self, index: int, error: Transient) -> None:
        now = self._loop.time()
        known = self._failed.get(index)
        self._failed[index] = _Failure(known.since if known else now, error)
        self._misses += 1
        rounds = self._misses // self._kind.parallel
        if rounds:  # not one item's trouble: as many as run at once have failed in a row
            self._rest_till = max(self._rest_till, now + self._pause(rounds, min(self._kind.cap_s, REST_CAP_S), error))

    async def _rested(self) -> None:
        wait = self._rest_till - self._loop.time()
        while wait > 0:
            await asyncio.sleep(wait)
            wait = self._rest_till - self._loop.time()

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
