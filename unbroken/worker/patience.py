"""Waiting for a model that is away. A model server that restarts is no error of the task: the run keeps its lease and
asks again, until the patience is over."""

from __future__ import annotations

import asyncio
import logging

from unbroken.tasks.errors import Unreached
from unbroken.worker.pacing import between, full_jitter

log = logging.getLogger("unbroken.worker.patience")
BASE_S, CAP_S = 0.5, 5.0  # between two tries


class Absence:
    """One line in the log when the model goes and one when it is back, however many calls wait meanwhile."""

    def __init__(self) -> None:
        self.since = 0.0

    def began(self, error: Unreached, patience_s: float) -> None:
        """A call found nobody."""
        if not self.since:
            self.since = asyncio.get_running_loop().time()
            log.warning("%s Waiting for it, up to %g s. (%s)", error.message, patience_s, error.detail or error.code)

    def ended(self) -> None:
        """A call was answered."""
        if self.since:
            log.warning("The model answers again, after %.1f s.", asyncio.get_running_loop().time() - self.since)
            self.since = 0.0


class Wait:
    """The patience of one call."""

    def __init__(self, patience_s: float, absence: Absence) -> None:
        self._patience_s, self._absence = patience_s, absence
        self._began = 0.0
        self._tries = 0
        self._answered = False

    def next(self, error: Unreached) -> float:
        """Seconds until the next try. Raises the error when the model had answered this call before, or when the
        patience is over."""
        now = asyncio.get_running_loop().time()
        self._began = self._began or now
        if self._answered or now - self._began >= self._patience_s:
            raise error
        self._absence.began(error, self._patience_s)
        self._tries += 1
        pause = full_jitter(self._tries, base=BASE_S, cap=CAP_S, roll=between(0.5, 1.0))
        return min(pause, self._began + self._patience_s - now)

    def answered(self) -> None:
        """The model has said something."""
        if not self._answered:
            self._answered = True
            self._absence.ended()
