"""The heartbeat: a thread of its own with a connection of its own, so that neither a kind that blocks the event loop
nor a slow reply to somebody else can cost a lease (G7).

An exception is "unknown", never "lost": only the script's own LOST ends a run. A lease is beaten until its runner has
an answer to its last call."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from unbroken.tasks import keys
from unbroken.tasks.connection import connect_sync
from unbroken.tasks.errors import LeaseLost, UnbrokenError
from unbroken.tasks.holder import wish
from unbroken.tasks.lease import Lease
from unbroken.tasks.scripts import script
from unbroken.tasks.settings import Settings
from unbroken.worker.pacing import between

log = logging.getLogger("unbroken.worker.heartbeat")

Listener = Callable[["str | LeaseLost"], None]
"""Called on the event loop with the owner's wish ('pause'), or with LeaseLost."""


@dataclass
class Pulse:
    """What the heartbeat has seen. Seconds of a steady clock."""

    beats: int = 0
    errors: int = 0
    last: float = 0.0
    longest: float = 0.0
    recent: list[float] = field(default_factory=list)
    """The last intervals between accepted rounds, newest last."""

    def ok(self, now: float) -> None:
        """A round was answered."""
        if self.last:
            gap = now - self.last
            self.longest = max(self.longest, gap)
            self.recent = [*self.recent[-63:], gap]
        self.last = now
        self.beats += 1


class Heart:
    """Renews all leases of this process."""

    def __init__(self, settings: Settings, *, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._lease_ms = settings.lease_ms
        self._every = settings.lease_s / 3
        self._loop = loop
        self._redis: Any = connect_sync(
            settings.redis_url, name=f"{name}-heart", timeout_s=min(5.0, max(0.3, settings.lease_s / 3))
        )
        self._script = script("heartbeat", audit_max=settings.audit_max)
        self._prefix = keys.prefix()
        self._held: dict[Lease, Listener] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._away = False
        self.pulse = Pulse()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop it, after the last lease was given back. Waits a moment for a round that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._redis.close()

    def add(self, lease: Lease, listener: Listener) -> None:
        """Renew this lease from now on."""
        with self._lock:
            if not self._held:
                self.pulse.last = time.monotonic()  # the time in which nothing was held is no interval
            self._held[lease] = listener

    def remove(self, lease: Lease) -> None:
        """It has ended."""
        with self._lock:
            self._held.pop(lease, None)

    def _run(self) -> None:
        wait = self._every
        while not self._stop.wait(between(0.85 * wait, wait)):
            with self._lock:
                held = dict(self._held)
            wait = self._every
            if held and not self._round(held):
                wait = min(self._every / 2, 0.5)

    def _round(self, held: dict[Lease, Listener]) -> bool:
        """One beat for all. Never raises; returns whether Redis answered."""
        try:
            replies = self._ask(list(held))
        except Exception as error:  # nothing at all may end this thread
            self.pulse.errors += 1
            if not self._away:
                self._away = True
                log.warning("heartbeat: no answer from Redis (%s)", type(error).__name__)
            return False
        if self._away:
            self._away = False
            log.info("heartbeat: Redis answers again")
        self.pulse.ok(time.monotonic())
        if self.pulse.recent and self.pulse.recent[-1] > 2 * self._every:
            log.warning(
                "heartbeat: %.1f s since the last, of a lease of %.1f s", self.pulse.recent[-1], 3 * self._every
            )
        for (lease, listener), reply in zip(held.items(), replies, strict=True):
            self._tell(lease, listener, reply)
        return True

    def _ask(self, leases: list[Lease]) -> list[Any]:
        replies = self._pipeline(leases)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            self._redis.script_load(self._script.source)
            replies = self._pipeline(leases)
        return replies

    def _pipeline(self, leases: list[Lease]) -> list[Any]:
        with self._redis.pipeline(transaction=False) as pipe:
            for lease in leases:
                pipe.evalsha(self._script.sha, 1, lease.key, self._prefix, *lease.args, self._lease_ms)
            return list(pipe.execute(raise_on_error=False))

    def _tell(self, lease: Lease, listener: Listener, reply: Any) -> None:
        try:
            asked: str | LeaseLost = wish(reply)
        except LeaseLost as lost:
            asked = lost
            self.remove(lease)
        except (UnbrokenError, RedisError):
            self.pulse.errors += 1
            return
        if asked:
            try:
                self._loop.call_soon_threadsafe(listener, asked)
            except RuntimeError:  # the loop has ended; so has the run
                self.remove(lease)
