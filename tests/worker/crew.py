"""A worker inside the test's own loop, and what a test wants to say and see around it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from tests.support.desk import OWNER
from tests.support.wait import PATIENCE_S, until
from unbroken.tasks import events
from unbroken.tasks.inputs import Message
from unbroken.tasks.kind import Kind
from unbroken.tasks.record import Task
from unbroken.tasks.registry import BUILT_IN
from unbroken.tasks.settings import Settings
from unbroken.tasks.store import Store
from unbroken.tasks.submit import NewTask
from unbroken.worker.backends.base import Backend
from unbroken.worker.backends.scripted import ScriptedBackend, script_text
from unbroken.worker.consumer import Consumer
from unbroken.worker.kinds.registry import load_kinds

PROMPT = "tell me"


def expected(tokens: int, seed: int = 7, prompt: str = PROMPT) -> str:
    """What the scripted backend says to our prompt."""
    return script_text(seed, tokens, [Message(role="user", content=prompt)])


class Crew:
    """The owner's side (submit, look) and the workers'."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self.redis: Any = redis
        self.settings = settings
        self.store = Store(redis, settings)
        self.kinds: dict[str, Kind] = load_kinds(settings)

    async def text(self, tokens: int = 200, *, prompt: str = PROMPT, seed: int = 7, **given: Any) -> str:
        """Submit a scripted text; `rate`, `fail`, ... go into the script, the rest into the task. Returns its id."""
        script: dict[str, Any] = {k: given.pop(k) for k in ("rate", "fail_at", "fail", "fail_times") if k in given}
        body = {"prompt": prompt, "scripted": {"seed": seed, "tokens": tokens, **script}}
        return await self.submit("text", body, total=tokens, **given)

    async def submit(self, kind: str, body: dict[str, Any], **given: Any) -> str:
        """Submit any task; returns its id."""
        spec = BUILT_IN.get(kind)
        unit = spec.unit if spec else self.kinds[kind].unit
        total = given.pop("total", None)
        if spec and total is None:
            total = spec.total(spec.input.model_validate(body))
        new = NewTask(owner=OWNER, kind=kind, input=body, unit=unit, total=total, **given)
        task, _ = await self.store.create(new, actor=OWNER)
        return task.id

    async def look(self, task_id: str) -> Task:
        """The record."""
        return await self.store.get(task_id, OWNER)

    async def state(self, task_id: str) -> str:
        """The state's word."""
        return (await self.look(task_id)).state.value

    async def reach(self, task_id: str, *states: str, within: float = PATIENCE_S) -> Task:
        """Wait for one of the states."""

        async def there() -> Task | None:
            task = await self.look(task_id)
            return task if task.state.value in states else None

        found = await until(there, f"{task_id} to be {' or '.join(states)}", within=within)
        assert found is not None
        return found

    async def long(self, task_id: str, length: int) -> Task:
        """Wait until the log holds that many characters."""

        async def there() -> Task | None:
            task = await self.look(task_id)
            return task if task.num("length") >= length else None

        found = await until(there, f"{task_id} to have {length} characters")
        assert found is not None
        return found

    async def log(self, task_id: str) -> list[tuple[str, dict[str, Any]]]:
        """All events: name and data."""
        raw = await self.store.events(task_id, "0-0", count=100_000)
        return [(name, json.loads(data)) for _, name, data in raw]

    async def folded(self, task_id: str) -> str:
        """The text as a viewer has it."""
        text = ""
        for name, data in await self.log(task_id):
            if name == events.CHUNK:
                assert data["offset"] <= len(text), "a hole"
                text = text[: data["offset"]] + data["text"]
        return text

    async def check_text(self, task_id: str, want: str) -> None:
        """G1: the viewer's text, the stored text and what `done` says are one."""
        stored = await self.store.text(task_id)
        assert (stored or b"").decode() == want
        assert await self.folded(task_id) == want
        name, done = (await self.log(task_id))[-1]
        assert name == events.DONE
        assert (done["length"], done["sha256"]) == (len(want), events.sha256(want.encode()))

    @asynccontextmanager
    async def working(
        self, *, backend: Backend | None = None, kinds: dict[str, Kind] | None = None, **changed: Any
    ) -> AsyncIterator[Consumer]:
        """A worker that runs while the block does, and is stopped in order afterwards."""
        settings = self.settings.model_copy(update=changed)
        consumer = Consumer(settings, backend or ScriptedBackend(), kinds or self.kinds)
        job = asyncio.create_task(consumer.run())
        try:
            yield consumer
        finally:
            consumer.stop()
            await asyncio.wait_for(job, 60)
