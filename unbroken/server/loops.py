"""The loops that notice what nobody else would: due tasks, lost leases, retention."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from unbroken.server.context import Services
from unbroken.tasks.audit import recount
from unbroken.tasks.errors import NotFound, StoreUnavailable
from unbroken.tasks.orphans import collect
from unbroken.tasks.result import encode_batch

log = logging.getLogger("unbroken.loops")
STEP = 100  # tasks in one step of Redis
SWEEP_S = 30.0
COLLECT_S = 3_600.0  # it lists every object
MEND_S = 60.0
MEND_REST = 4  # times as long as a page of it took
BACKOFF_MAX_S = 5.0


class Repeating:
    """Runs `step` again and again; survives everything, says when it last succeeded, and logs an outage once."""

    name = "loop"
    every_s = 1.0
    delay_s = 0.0
    """Before the first cycle."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.finished = 0.0
        self._failures = 0

    async def step(self) -> bool:
        """Do some work. True: there is more, go on at once."""
        raise NotImplementedError

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(self.delay_s)
        while True:
            pause = self.every_s * random.uniform(0.8, 1.2)  # noqa: S311
            try:
                more = await self.step()
                self.finished = time.monotonic()
                if self._failures:
                    log.info("%s: works again after %d failures", self.name, self._failures)
                self._failures = 0
                pause = 0 if more else pause
            except StoreUnavailable as error:
                pause = self._failed(str(error), None)
            except Exception as error:
                pause = self._failed("unexpected error", error)
            await asyncio.sleep(pause)

    def _failed(self, what: str, error: Exception | None) -> float:
        if self._failures == 0:
            log.warning("%s: %s", self.name, what, exc_info=error)
        self._failures += 1
        return random.uniform(0.1, min(BACKOFF_MAX_S, 0.2 * 2 ** min(10, self._failures)))  # noqa: S311


class Reaper(Repeating):
    """Due tasks become ready; leases that ran out become recovering or paused."""

    name = "reaper"

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        settings = services.settings
        self.every_s = settings.reap_ms / 1000
        if "reap_ms" not in settings.model_fields_set:
            # One that looks less often than every half lease believes in an outage each time, and takes nothing back.
            self.every_s = min(self.every_s, settings.lease_s / 8)
        self.lost = 0
        """Leases found lost by this process."""

    async def step(self) -> bool:
        """One bounded step."""
        moved, lost = await self.services.store.reap(limit=STEP)
        if lost:
            self.lost += lost
            log.warning("%d workers' leases ran out; their tasks continue elsewhere or wait for recovery", lost)
        return moved >= STEP or lost >= STEP


class Sweeper(Repeating):
    """What is past its retention goes, with its objects; before that, what should outlive it is archived."""

    name = "sweeper"
    every_s = SWEEP_S

    async def step(self) -> bool:
        """One bounded step."""
        swept, where, archive = await self.services.store.sweep(limit=STEP)
        await self.services.forget_objects(where)
        done = [task_id for task_id in archive if await self._try_archive(task_id)]
        if swept:
            log.info("swept %d tasks", swept)
        return swept >= STEP or bool(done)  # what is archived now may go now

    async def _try_archive(self, task_id: str) -> bool:
        """One that cannot be archived stays as it is, comes back in a minute, and does not hold up the others."""
        try:
            await self._archive(task_id)
        except (NotFound, StoreUnavailable):  # deleted meanwhile, or an outage, which is told elsewhere
            return False
        except Exception:
            log.exception("the result of %s could not be archived; it is kept", task_id)
            return False
        return True

    async def _archive(self, task_id: str) -> None:
        store = self.services.store
        task = await store.get(task_id, None)
        if task.text("unit") == "items":
            body, media = encode_batch(await store.items(task_id)), "json"
        else:
            body, media = await store.text(task_id) or b"", "txt"
        await self.services.objects.archive(task.owner, task_id, media, body)
        if not await store.archived(task_id):  # deleted while it was uploaded: nothing of it may stay
            await self.services.objects.forget_archived(task.owner, task_id)


class Mender(Repeating):
    """Compares every index with every record and mends what a lost key or a damaged database left behind."""

    name = "mender"
    every_s = MEND_S

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.finished = time.monotonic()  # it has not missed anything yet

    async def step(self) -> bool:
        """One recount."""
        found = await recount(self.services.store, repair=True, rest=self._rest)
        if found.differences:
            log.warning("mended %d differences, the first: %s", len(found.differences), found.differences[0])
        return False

    async def _rest(self, took: float) -> None:
        """A long recount leaves most of the time to others, and is no loop that hangs."""
        self.finished = time.monotonic()
        await asyncio.sleep(min(1.0, MEND_REST * took))


class Collector(Repeating):
    """Deletes objects that no checkpoint refers to."""

    name = "collector"
    every_s = COLLECT_S
    delay_s = COLLECT_S / 10

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.finished = time.monotonic()

    async def step(self) -> bool:
        """One look at all objects."""
        await collect(self.services.objects, self.services.store.calls)
        return False
