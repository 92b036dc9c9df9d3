"""Checkpoints of one run: when offered points are saved, where their bytes go, and what happens when saving fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from unbroken.tasks import codec
from unbroken.tasks.errors import LeaseLost, StoreUnavailable, UnbrokenError
from unbroken.tasks.holder import Broken, Holder
from unbroken.tasks.kind import Checkpoint
from unbroken.tasks.lease import Lease
from unbroken.tasks.objects import Objects, in_short
from unbroken.tasks.spool import Spooled, is_large, spooled
from unbroken.worker.pacing import CheckpointPace
from unbroken.worker.pump import Pump
from unbroken.worker.writer import Writer

log = logging.getLogger("unbroken.worker.saver")
FAILURES_MAX = 3  # in a row
KEEP_MAX = 16 * 1024  # bytes; an offered state up to this is encoded at once, so that it can still be saved later


@asynccontextmanager
async def _in_thread(spooling: AbstractContextManager[Spooled]) -> AsyncIterator[Spooled]:
    """A large state is encoded and compressed beside the event loop."""
    large = await asyncio.to_thread(spooling.__enter__)
    try:
        yield large
    finally:
        spooling.__exit__(None, None, None)


class SavingFailed(UnbrokenError):
    """Three saves in a row failed: better stop with what is saved than run on unprotected."""


@dataclass(slots=True)
class _Offer:
    """The last offered point: where it is, and what to save if the run stops exactly there."""

    chars: int
    make: Any = None
    """A function that may still be asked at the end. What it told before does not hold: other work goes on beside."""
    late: bool = False
    """It holds at this place in the text, whatever else is yielded after it."""
    kept: codec.Sealed | None = None
    saved: bool = False


class Saver:
    """Saves the points that a kind offers.

    late: a state that is a function may still be asked after the generator was closed. So for kinds that continue from
    the text; where the state is the truth, a kind that has gone on since may have changed half of it."""

    def __init__(
        self, lease: Lease, holder: Holder, objects: Objects, writer: Writer, pump: Pump, *, schema: int, late: bool
    ) -> None:
        self._lease, self._holder, self._objects, self._writer, self._pump = lease, holder, objects, writer, pump
        s = holder.settings
        self._schema, self._late = schema, late
        self._loop = asyncio.get_running_loop()
        self.pace = CheckpointPace(s.checkpoint_tokens, s.checkpoint_s, self._loop.time())
        self._seq = 0
        self._failed = 0  # in a row
        self._unsaved = 0  # in all, under this lease
        self._small = True
        self._offer: _Offer | None = None
        self.give_up: Callable[[], bool] = lambda: False

    def moved(self) -> None:
        """Something else was yielded: the run is beyond the last offered point, unless that was a late one."""
        if self._offer is not None and not self._offer.late:
            self._offer = None

    @property
    def at_offer(self) -> bool:
        """Is the run exactly where the last offer was, and is that point saved or can still be?"""
        offer = self._offer
        if offer is None or offer.chars != self._writer.chars:
            return False
        return offer.saved or offer.kept is not None or offer.make is not None

    async def offer(self, point: Checkpoint, *, stopping: bool = False) -> None:
        """A kind offers a point. Raises SavingFailed, LeaseLost."""
        self._offer = offer = _Offer(self._writer.chars)
        if not self._holder.settings.checkpoints:
            return
        # In an outage points are passed over, not waited for: a later one is as good. Not so a milestone.
        if point.late and self._late and callable(point.state):
            offer.make, offer.late = point.state, True
            if stopping:
                return
        due = self.pace.due(self._loop.time()) and not self._pump.trouble
        if point.milestone or stopping or due:
            await self._save(point.state)
        elif not callable(point.state):
            self._keep(offer, point.state)
        elif self._late:
            offer.make = point.state

    def _keep(self, offer: _Offer, state: Mapping[str, Any]) -> None:
        # The kind may change its state in place after this: only bytes made now are the state of this point.
        if self._small and not is_large(state):
            try:
                sealed = self._seal(state)
            except (ValueError, TypeError, OverflowError):
                return  # told when it is its turn to be saved
            self._small = sealed.raw <= KEEP_MAX
            offer.kept = sealed

    async def last(self) -> None:
        """The run has stopped: save the last offered point if the run is still exactly there. Never raises
        SavingFailed."""
        offer = self._offer
        if offer is None or offer.saved or not self._holder.settings.checkpoints:
            return
        what = offer.kept if offer.kept is not None else offer.make
        if what is not None and offer.chars == self._writer.chars:
            try:
                await self._save(what)
            except SavingFailed:
                log.error("%s: the last checkpoint could not be saved", self._lease.task_id)

    def _seal(self, state: Mapping[str, Any]) -> codec.Sealed:
        return codec.seal(state, schema=self._schema, limit=self._holder.settings.checkpoint_max)

    async def _save(self, what: Any) -> None:
        began = self._loop.time()
        try:
            await self._try(what)
        except (LeaseLost, Broken, SavingFailed):
            raise
        except Exception as error:
            if isinstance(error, StoreUnavailable) and self.give_up():
                raise
            self._failed += 1
            self._unsaved += 1
            log.warning(
                "%s: checkpoint not saved (%d in a row): %s", self._lease.task_id, self._failed, in_short(error)
            )
            await self._warn(f"Checkpoint not saved ({self._failed} in a row): {in_short(error)}")
            if self._failed >= FAILURES_MAX:
                raise SavingFailed(
                    f"{FAILURES_MAX} checkpoints in a row could not be saved: {in_short(error)}"
                ) from error
        else:
            if self._failed:
                self._failed = 0
                await self._warn("")
            if self._offer is not None:
                self._offer.saved = self._offer.make is None
        finally:
            now = self._loop.time()
            self.pace.tried(now, now - began)

    async def _warn(self, message: str) -> None:
        try:
            await self._holder.warn(self._lease, message, unsaved=self._unsaved)
        except StoreUnavailable:
            return

    async def _try(self, what: Any) -> None:
        state = what if isinstance(what, (Mapping, codec.Sealed)) else await what()
        self._writer.end_text()
        self._writer.show_progress()
        self._writer.forget_tokens()
        self._seq += 1
        seq, lease = self._seq, self._lease
        sealed, where = await self._stored(state, seq)
        await self._writer.flush()
        offset, progress = self._writer.chars, self._writer.fraction
        orphan = await self._pump.patiently(
            lambda: self._holder.checkpoint(
                lease, seq=seq, offset=offset, progress=progress, sealed=sealed, where=where
            ),
            give_up=self.give_up,
            full_s=0,
        )
        if orphan:
            await self._objects.discard(orphan)

    async def _stored(self, state: Mapping[str, Any] | codec.Sealed, seq: int) -> tuple[codec.Sealed, str]:
        """The state as bytes, and where they are: 'inline', or the key of an object that has them already."""
        lease, s = self._lease, self._holder.settings
        if not isinstance(state, codec.Sealed) and is_large(state):
            async with _in_thread(spooled(state, schema=self._schema, limit=s.checkpoint_max)) as large:
                if large.sealed.size > s.checkpoint_inline_max:
                    return large.sealed, await self._objects.put_file(
                        lease.task_id, lease.epoch, seq, large.sealed, large.path
                    )
                data = await asyncio.to_thread(large.path.read_bytes)
                return replace(large.sealed, data=data, stored=None), "inline"
        sealed = state if isinstance(state, codec.Sealed) else self._seal(state)
        if sealed.size > s.checkpoint_inline_max:
            return sealed, await self._objects.put(lease.task_id, lease.epoch, seq, sealed)
        return sealed, "inline"
