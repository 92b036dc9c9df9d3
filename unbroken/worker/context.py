"""What a kind gets: its resume point, and the way to the model."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from unbroken.tasks import keys
from unbroken.tasks.connection import Calls
from unbroken.tasks.errors import Transient, Unreached
from unbroken.tasks.inputs import Generation
from unbroken.tasks.kind import Piece, Prefix, Rewind, Tail
from unbroken.tasks.settings import Settings
from unbroken.worker.backends.base import Backend, Call
from unbroken.worker.pacing import between
from unbroken.worker.patience import Absence, Wait
from unbroken.worker.pump import Pump

NOTHING = Prefix()
CHARS_PER_TOKEN = 4  # a rough estimate, only for what a call will cost of the shared budget


class ModelLimits:
    """Requests and tokens per minute towards one model, shared by all workers: buckets in Redis, by its clock."""

    def __init__(self, calls: Calls, pump: Pump, settings: Settings) -> None:
        self._calls, self._pump, self._settings = calls, pump, settings

    async def wait(self, ask: Generation, prefix: Prefix) -> None:
        """Return when the call may start."""
        s = self._settings
        name = hashlib.sha256((ask.model or s.model or s.backend).encode()).hexdigest()[:16]
        if s.model_requests_per_minute:
            await self._take(f"model:{name}:requests", s.model_requests_per_minute, 1)
        if s.model_tokens_per_minute:
            asked = sum(len(m.content) for m in ask.messages) + len(ask.system or "") + len(prefix.text)
            room = max(1, (ask.max_tokens or s.default_max_tokens) - prefix.count)
            await self._take(f"model:{name}:tokens", s.model_tokens_per_minute, asked // CHARS_PER_TOKEN + room)

    async def _take(self, bucket: str, per_minute: int, amount: int) -> None:
        key = keys.key("bucket", bucket)
        while True:
            reply = await self._pump.patiently(
                lambda: self._calls.call("take", key, per_minute, per_minute, max(1, amount))
            )
            if not int(reply):
                return
            await asyncio.sleep(int(reply) / 1000 + between(0, 0.05))


@dataclass
class Context:
    """The Run that a kind sees (tasks/kind.py says what each part means)."""

    task_id: str
    attempt: int
    input: Any
    text: str
    state: Mapping[str, Any] | None
    state_offset: int
    tail: Sequence[Tail]
    items: Mapping[int, Any]
    settings: Settings
    backend: Backend
    limits: ModelLimits
    absence: Absence = field(default_factory=Absence)
    failures: int = 0
    last_try: bool = False
    waiting: int = 0
    on_wait: Callable[[], None] = lambda: None
    """Called when a call begins to wait for a model that is away."""
    _failed: Counter[str] = field(default_factory=Counter)
    _open: set[AsyncGenerator[Piece | Rewind, None]] = field(default_factory=set)

    async def generate(
        self, ask: Generation, prefix: Prefix = NOTHING, *, part: str = ""
    ) -> AsyncIterator[Piece | Rewind]:
        """See Run.generate."""
        await self.limits.wait(ask, prefix)
        request_id = f"{self.task_id}-{self.attempt}" + (f"-{part}" if part else "")
        failures = self.failures + self._failed[part]
        call = Call(self.task_id, request_id, self.attempt, failures)
        wait = Wait(self.settings.model_patience_s, self.absence)
        try:
            while True:
                try:
                    async with aclosing(self._once(ask, prefix, call)) as pieces:
                        async for piece in pieces:
                            wait.answered()
                            yield piece
                    return
                except Unreached as error:
                    pause = wait.next(error)  # raises the error once something was said, or the patience is over
                self.waiting += 1
                self.on_wait()
                try:
                    await asyncio.sleep(pause)
                finally:
                    self.waiting -= 1
        except Transient:
            self._failed[part] += 1
            raise

    async def _once(self, ask: Generation, prefix: Prefix, call: Call) -> AsyncGenerator[Piece | Rewind, None]:
        stream = self.backend.generate(ask, prefix, call)
        self._open.add(stream)
        limit, waited = self.settings.first_token_timeout_s, "first_token_timeout"
        try:
            while True:
                try:
                    async with asyncio.timeout(limit):
                        piece = await anext(stream)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise Transient(waited, f"The model said nothing for {limit:g} seconds.") from None
                yield piece
                limit, waited = self.settings.idle_timeout_s, "idle_timeout"
        finally:
            await stream.aclose()
            self._open.discard(stream)

    @property
    def idle(self) -> bool:
        """Every call waits for a model that is away: nothing is under way that a stop would cut off."""
        return self.waiting > 0 and not self._open

    async def close(self) -> None:
        """Close every call that a kind left open."""
        for stream in list(self._open):
            try:
                await stream.aclose()
            except RuntimeError:  # still being pulled by a task that will not end; its own `finally` closes it
                continue
