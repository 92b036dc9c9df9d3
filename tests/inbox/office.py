"""What inbox tests look at: the trail of moves by the database's own clock, and the model's list of calls."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from tests.support.api import Api
from tests.support.nursery import command_line
from tests.support.processes import Stack, environment
from unbroken.tasks import keys
from unbroken.tasks.settings import Settings
from unbroken.tasks.store import Store


@dataclass(frozen=True)
class Move:
    """One entry of the audit trail. at: Redis milliseconds."""

    at: int
    task: str
    owner: str
    op: str
    before: str
    after: str


@dataclass(frozen=True)
class Call:
    """One call of the model."""

    task_id: str
    attempt: int
    part: str
    """Which part of the task: `item-7`, or ''."""


class Record:
    """The scripted model's list of calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def calls(self, task_id: str | None = None) -> list[Call]:
        """All calls, or those of one task, in order."""
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(_call, lines) if task_id in (None, call.task_id)]


def _call(line: str) -> Call:
    said = json.loads(line)
    whole = f"{said['task_id']}-{said['attempt']}"
    return Call(said["task_id"], said["attempt"], said["request_id"].removeprefix(whole).removeprefix("-"))


class Office:
    """A stack and short ways to look into it."""

    def __init__(self, stack: Stack, redis: Redis) -> None:
        self.stack = stack
        self.redis: Any = redis
        self.store = Store(redis, Settings(redis_url=stack.valkey.url))

    @property
    def api(self) -> Api:
        """A client of the server."""
        return self.stack.api

    async def submit_many(self, count: int, data: dict[str, Any], **body: Any) -> list[str]:
        """So many tasks with the same body; their ids."""
        gate = asyncio.Semaphore(32)

        async def one() -> str:
            async with gate:
                return str((await self.api.submit(data, **body))["task_id"])

        return list(await asyncio.gather(*(one() for _ in range(count))))

    async def count(self, state: str, owner: str = "local") -> int:
        """How many tasks of an owner are in a state."""
        return int(await self.redis.zcard(keys.key("list", state, owner)))

    async def moves(self, **equal: str) -> list[Move]:
        """The trail, oldest first; `equal` filters by task, owner or op."""
        raw = await self.redis.xrange(keys.key("audit"))
        trail = (
            Move(*(int(e[b"at"]), *(e[name].decode() for name in (b"task", b"owner", b"op", b"from", b"to"))))
            for _, e in raw
        )
        return [move for move in trail if all(getattr(move, name) == value for name, value in equal.items())]

    async def cli(self, *arguments: str, ok: int = 0, stdin: bytes | None = None, **more: object) -> tuple[str, str]:
        """A command of `unbroken`, as a script runs it: (stdout, stderr)."""
        stack = self.stack
        env = environment(url=stack.url, redis_url=stack.redis_url, data_dir=stack.folder, **more)
        said = await command_line(*arguments, env=env, stdin=stdin or b"")
        assert said.code == ok, said
        return said.out.decode(), said.err.decode()


def together(moves: list[Move]) -> Iterator[tuple[int, Counter[str]]]:
    """After each move: how many tasks run at once, in all and for each owner."""
    running: Counter[str] = Counter()
    for move in moves:
        running[move.owner] += (move.after == "processing") - (move.before == "processing")
        yield sum(running.values()), running.copy()
