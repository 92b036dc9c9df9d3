"""One loop per process that sends what the writers have gathered: all that are ready in one round trip."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import DataError

from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.holder import Broken, Holder
from unbroken.tasks.lease import Batch, Lease
from unbroken.worker.pacing import between, full_jitter

if TYPE_CHECKING:
    from unbroken.worker.writer import Writer

log = logging.getLogger("unbroken.worker.pump")
T = TypeVar("T")
BACKOFF_BASE_S, BACKOFF_CAP_S = 0.05, 1.0
CALLS_AT_ONCE = 64  # below the size of redis-py's pool
ALONE_TRIES = 3
_UNSENDABLE = (DataError, TypeError, ValueError, ArithmeticError)  # of arguments, before anything is sent


class Outage:
    """One line in the log at the start of an outage and one at its end, however many calls fail in between."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.tries = 0

    def failed(self, error: Exception) -> float:
        """A call failed. Returns the seconds to wait before the next, where one loop makes all of them."""
        if self.tries == 0:
            log.warning("%s: %s; trying again until it answers", self._what, error)
        self.tries += 1
        return pause(self.tries)

    def over(self) -> None:
        """A call was answered."""
        if self.tries:
            log.warning("%s: Redis answers again after %d tries", self._what, self.tries)
            self.tries = 0


def _unwritable(error: Exception) -> Broken:
    wrong = Broken(f"what was to be written is malformed: {error!r}")
    wrong.__cause__ = error
    return wrong


def pause(tries: int) -> float:
    """Seconds before the next try; never nothing, so that no loop is hot."""
    return full_jitter(tries, base=BACKOFF_BASE_S, cap=BACKOFF_CAP_S, roll=between(0.2, 1.0))


class Pump:
    """Sends batches. Keeps each unanswered batch until there is an answer."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._ready: dict[Writer, None] = {}
        self._wake = asyncio.Event()
        self._outage = Outage("append")
        self._others = Outage("calls")
        self._gate = asyncio.Semaphore(CALLS_AT_ONCE)

    @property
    def trouble(self) -> bool:
        """Redis did not answer the last time."""
        return self._outage.tries > 0

    def ready(self, writer: Writer) -> None:
        """The writer has something to send."""
        self._ready[writer] = None
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            writers, self._ready = self._ready, {}
            try:
                await self._send(writers)
                continue
            except StoreUnavailable as error:
                wait = self._outage.failed(error)
            except Exception as error:  # the writers depend on this loop: whatever it was, it goes on
                log.exception("append failed in an unknown way")
                wait = self._outage.failed(error)
            self._ready = writers | self._ready
            await asyncio.sleep(wait)
            self._wake.set()

    async def _send(self, writers: dict[Writer, None]) -> None:
        batches = self._batches(writers)
        if not batches:
            return
        try:
            replies = await self._holder.append_many([(writer.lease, batch) for writer, batch in batches])
        except _UNSENDABLE:  # one of them cannot be sent, and the others wait for it
            replies = [await self._alone(writer.lease, batch) for writer, batch in batches]
        self._outage.over()
        for (writer, _), reply in zip(batches, replies, strict=True):
            writer.answered(reply)

    def _batches(self, writers: dict[Writer, None]) -> list[tuple[Writer, Batch]]:
        """What there is to send. A batch that cannot be made ends the run that it is of, and nobody else's."""
        found = []
        for writer in writers:
            try:
                batch = writer.next_batch()
            except Exception as error:
                log.exception("%s: a batch that cannot be made", writer.lease.task_id)
                writer.fail(_unwritable(error))
                continue
            if batch:
                found.append((writer, batch))
        return found

    async def _alone(self, lease: Lease, batch: Batch) -> Any:
        """The reply to this batch alone (to be sent again is in its nature), or in its place what is wrong with it.
        Raises StoreUnavailable."""
        for _ in range(ALONE_TRIES):  # a client in disorder may say such things, too
            try:
                return (await self._holder.append_many([(lease, batch)]))[0]
            except _UNSENDABLE as error:
                wrong = _unwritable(error)
        log.error("%s: a batch that cannot be sent", lease.task_id, exc_info=wrong)
        return wrong

    async def patiently(
        self, call: Callable[[], Awaitable[T]], *, give_up: Callable[[], bool] = lambda: False, full_s: float = 10.0
    ) -> T:
        """Make a call that may be repeated, until it is answered. Raises what it raises, and StoreUnavailable when
        `give_up` says so or when Redis has been full for `full_s` seconds."""
        loop = asyncio.get_running_loop()
        full_since, tries = 0.0, 0
        while True:
            try:
                async with self._gate:
                    answer = await call()
            except StoreUnavailable as error:
                full_since = (full_since or loop.time()) if error.full else 0.0
                if give_up() or (full_since and loop.time() - full_since > full_s):
                    raise
                tries += 1
                self._others.failed(error)
                await asyncio.sleep(pause(tries))
            else:
                self._others.over()
                return answer
