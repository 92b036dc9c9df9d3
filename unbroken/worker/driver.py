"""Drives one kind's generator: pulls updates, turns them into writes, and stops where that loses nothing.

Two sorts of stop. In order (a pause, a shutdown, a timeout): where the last offered checkpoint is exactly here, at
once; otherwise the kind may go on to its next offer, for a limited time. Lost: at once, and nothing is written."""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum

from unbroken.tasks import events
from unbroken.tasks.errors import LeaseLost
from unbroken.tasks.holder import Holder
from unbroken.tasks.kind import Checkpoint, Item, Progress, Rewind, Text, Update
from unbroken.tasks.lease import Lease
from unbroken.worker.door import ITEM_MAX, checked
from unbroken.worker.pump import Pump
from unbroken.worker.saver import Saver
from unbroken.worker.sources import End, Source
from unbroken.worker.writer import UNFLUSHED_MAX, Writer

log = logging.getLogger("unbroken.worker.driver")
BREATH_S = 0.005  # a kind that never waits lets the others run this often


class Why(StrEnum):
    """Why a run is to stop."""

    PAUSE = "requested"
    SHUTDOWN = "shutdown"
    TIMEOUT = "timeout"
    FULL = "full"
    BROKEN = "broken"  # what it wrote was refused, or could not even be sent
    LOST = "lost"


class _Cut(Exception):
    """The generator was stopped and gives nothing more."""


class Driver:
    """One generator's run. grace_s: how long an orderly stop waits for the next offer."""

    def __init__(
        self, lease: Lease, source: Source, writer: Writer, saver: Saver, holder: Holder, pump: Pump, *, grace_s: float
    ) -> None:
        self._lease, self._source, self._writer, self._saver = lease, source, writer, saver
        self._holder, self._pump, self._grace_s = holder, pump, grace_s
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._pulling = False
        self._cut = False
        self.cut_at = 0.0
        """When it was to end wherever it was (0: not yet); seconds of the loop's clock."""
        self._breath = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.why: Why | None = None
        self.ended = False
        """The generator came to its end: the work is done."""

    def stop(self, why: Why) -> None:
        """Ask for a stop. LOST overrides everything, BROKEN a stop in order."""
        if self.why in (Why.LOST, Why.FULL) or (self.why is not None and why not in (Why.LOST, Why.BROKEN)):
            return
        self.why = why
        if why in (Why.LOST, Why.FULL, Why.BROKEN) or (self._saver.at_offer and not self._source.steady):
            self.cut()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._grace_s, self.cut)

    def cut(self) -> None:
        """Stop now, wherever the generator is."""
        self._cut = True
        self.cut_at = self.cut_at or self._loop.time()
        self._writer.wake()
        if self._pulling and self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Until the end, a stop, or an error, which is raised. The generator is closed afterwards in every case."""
        self._task = asyncio.current_task()
        try:
            await self._loop_over()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._source.close()

    async def _loop_over(self) -> None:
        while not self._cut:
            try:
                update = await self._pull()
            except End:
                self.ended = True
                return
            except _Cut:
                return
            await self._take(update)
            if self.why is not None and self._saver.at_offer:
                return
            if self._loop.time() - self._breath > BREATH_S:
                await asyncio.sleep(0)
                self._breath = self._loop.time()

    async def _pull(self) -> Update:
        self._pulling = True
        try:
            return await self._source.pull()
        except asyncio.CancelledError:
            if not self._cut:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        finally:
            self._pulling = False
        # Where the last offer still holds, what comes after it is left for the next run.
        dropped = self.why in (Why.LOST, Why.BROKEN) or self._saver.at_offer
        update = None if dropped else await self._source.rest()
        if update is None:
            raise _Cut
        return update

    async def _take(self, update: Update) -> None:
        if self.why is Why.LOST:
            raise LeaseLost
        writer = self._writer
        match checked(update):
            case Text() as update:
                self._saver.moved()
                writer.add(update.text, update.tokens, update.mark, update.count)
                self._saver.pace.count(update.count)
                if writer.unflushed > UNFLUSHED_MAX and not self._cut:
                    await writer.room()
            case Checkpoint() as update:
                await self._saver.offer(update, stopping=self.why is not None)
            case Progress(done, total):
                writer.progress(done, total)
            case Item() as item:
                self._saver.moved()
                await self._item(item)
            case Rewind(offset):
                self._saver.moved()
                await writer.rewind(offset)

    async def _item(self, item: Item) -> None:
        data: dict[str, object] = {"index": item.index, "ok": item.error is None}
        if item.error is None:
            data["result"] = item.result
        else:
            data["error"] = dict(item.error)
        raw = events.encode(data)
        if len(raw) > ITEM_MAX:
            raise ValueError(f"an item of {len(raw)} bytes: at most {ITEM_MAX}")
        total = self._writer.total or item.index + 1
        fresh, asked = await self._pump.patiently(
            lambda: self._holder.item(self._lease, item.index, raw, total), give_up=self._lost
        )
        if fresh:
            self._writer.item_set()
        if asked == "pause":
            self.stop(Why.PAUSE)

    def _lost(self) -> bool:
        return self.why is Why.LOST
