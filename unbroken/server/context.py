"""What the routes of one running application share. Made at start, gone at the end: no state in modules."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import HTTPConnection

from unbroken.server.hub import Hub
from unbroken.server.records import Records
from unbroken.server.rendering import Renderer
from unbroken.server.replay import Replayer
from unbroken.tasks.access import Access
from unbroken.tasks.objects import Objects
from unbroken.tasks.registry import Spec
from unbroken.tasks.settings import Settings
from unbroken.tasks.store import Store


class Streams:
    """How many streams each owner has open. Entered and left inside the response's own lifetime, so that nothing is
    counted for a stream that never began."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open: Counter[str] = Counter()

    def enter(self, owner: str) -> bool:
        """False when the owner has too many."""
        if self.open[owner] >= self.limit:
            return False
        self.open[owner] += 1
        return True

    def leave(self, owner: str) -> None:
        """One less."""
        self.open[owner] -= 1
        if self.open[owner] <= 0:
            del self.open[owner]


class Loop(Protocol):
    """A loop that says when it last did its work."""

    name: str
    finished: float
    """Monotonic time of the last completed cycle; 0 before the first."""
    every_s: float


@dataclass
class Services:
    """Everything a handler needs."""

    settings: Settings
    store: Store
    hub: Hub
    records: Records
    replayer: Replayer
    access: Access
    kinds: dict[str, Spec]
    streams: Streams
    objects: Objects
    renderer: Renderer = field(default_factory=Renderer)
    loops: list[Loop] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    replays: int = 0
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Finished requests by method and status."""

    async def forget_objects(self, where: list[str]) -> None:
        """Delete objects that nothing refers to any more."""
        for name in where:
            await self.objects.discard(name)

    def stop(self) -> None:
        """Close all streams soon; may be called from another thread."""
        self.loop.call_soon_threadsafe(self.stopping.set)

    def count_replay(self) -> None:
        """A viewer asked for the past."""
        self.replays += 1


def services(request: HTTPConnection) -> Services:
    """Those of the application that serves this request."""
    found: Services = request.app.state.services
    return found
