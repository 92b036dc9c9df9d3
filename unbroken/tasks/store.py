"""What owners, the server and operators ask of Redis: one method for each, over one script where state changes.

The workers' side (everything under a lease) is holder.py."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.asyncio import Redis

from unbroken.tasks import codec, keys
from unbroken.tasks.connection import Calls, connect, translated
from unbroken.tasks.errors import Conflict, Corrupt, NotFound, Refused
from unbroken.tasks.log import Log
from unbroken.tasks.record import CHECKPOINT_FIELDS, CheckpointInfo, Task, pairs
from unbroken.tasks.refusals import why
from unbroken.tasks.settings import Settings
from unbroken.tasks.state import State
from unbroken.tasks.submit import NewTask

log = logging.getLogger("unbroken.tasks")
SCAN_LIMIT = 2_000  # records one filtered list call may look at, so that a page costs the same whatever it filters
TOLD_MAX = 1_000  # records that cannot be read and are told in the log, each once
AGAIN_MS = 60_000  # within this a call whose reply was lost has been sent again


def new_call() -> str:
    """A name for one call of an owner, by which a repeat of it is recognised (G14)."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; `cursor` is None at the end."""

    tasks: list[Task]
    cursor: str | None


def open_store(settings: Settings, *, name: str = "unbroken", clock: str | None = None) -> Store:
    """A store with a client of its own. Close it."""
    return Store(connect(settings.redis_url, name=name), settings, clock=clock)


class Store(Log):
    """The door to Redis for everyone who does not hold a lease."""

    def __init__(self, redis: Redis, settings: Settings, *, clock: str | None = None) -> None:
        self.redis: Any = redis
        self.settings = settings
        self.calls = Calls(redis, audit_max=settings.audit_max, clock=clock)
        self._keep = int(settings.result_s * 1000)
        self._idem = int(settings.idempotency_s * 1000)
        self._told: set[str] = set()

    async def close(self) -> None:
        """Release the connections."""
        await self.redis.aclose()

    # owners: one task

    async def create(self, new: NewTask, *, actor: str, idempotency_key: str | None = None) -> tuple[Task, bool]:
        """Store a task and queue it. Returns it, and whether this is a replay of an earlier answer. With `cache_ms`, a
        finished task of the same owner, kind and input is returned instead; its field `cached` is then "1". A key lives
        as long as its task, and `idempotency_s` beyond its end; with a task that is deleted it goes, too.
        Raises Conflict when the key was used with another body."""
        task_id = keys.new_task_id()
        data = codec.pack(new.input)
        idem = keys.idem(new.owner, idempotency_key) if idempotency_key else ""
        digest = hashlib.sha256(codec.pack([new.fields(), new.due_ms, new.input])).hexdigest()
        cache = keys.idem(new.owner, new.kind + codec.pack(new.input).hex()) if new.cache_ms else ""
        # the title follows from the input: it is no part of what makes two submits the same
        flat = [part for pair in (new.fields() | {"title": new.title}).items() for part in pair]
        reply = await self.calls.call(
            "create",
            keys.key("task", task_id),
            task_id,
            new.owner,
            actor,
            idem,
            digest,
            new.due_ms,
            new.head_ms,
            data,
            cache,
            new.cache_ms,
            self._idem,
            *flat,
        )
        match reply:
            case [b"OK", created]:
                return new.first_view(task_id, int(created)), False
            case [b"SAME", known, created]:
                return new.first_view(known.decode(), int(created)), True
            case [b"CACHED", known, repeated]:
                try:
                    hit = await self.get(known.decode(), new.owner)
                except NotFound:  # deleted in this very moment: it is no answer any more
                    return await self.create(new, actor=actor, idempotency_key=idempotency_key)
                return replace(hit, fields={**hit.fields, "cached": b"1"}), bool(repeated)
        raise Conflict("this Idempotency-Key was used with another body")

    async def answered(self, owner: str, idempotency_key: str) -> bool:
        """Would this key be answered with a task that is there already?"""
        with translated():
            task_id = await self.redis.hget(keys.key("idem", keys.idem(owner, idempotency_key)), "task")
            return bool(task_id and await self.redis.exists(keys.key("task", task_id.decode())))

    async def get(self, task_id: str, owner: str | None) -> Task:
        """The task; `owner` None skips the check (operators, hub). Raises NotFound, also for a foreign one."""
        if not keys.is_task_id(task_id):
            raise NotFound(task_id)
        found = (await self._read([task_id]))[0]
        if found is None or (owner is not None and found.owner != owner):
            raise NotFound(task_id)
        return found

    async def _read(self, ids: Sequence[str]) -> list[Task | None]:
        with translated():
            async with self.redis.pipeline(transaction=False) as pipe:
                for task_id in ids:
                    pipe.hgetall(keys.key("task", task_id))
                    pipe.hmget(keys.key("ckpt", task_id), CHECKPOINT_FIELDS)
                pipe.time()
                *replies, now = await pipe.execute(raise_on_error=False)
        if not isinstance(now, (list, tuple)):
            with translated():
                raise now
        ms = int(now[0]) * 1000 + int(now[1]) // 1000
        found: list[Task | None] = []
        for task_id, fields, values in zip(ids, replies[::2], replies[1::2], strict=True):
            if isinstance(fields, Exception) or isinstance(values, Exception) or not fields:
                found.append(None)  # a key of a wrong type harms only its task
                continue
            try:
                named = {name.decode(): value for name, value in fields.items()}
                found.append(Task(task_id, named, CheckpointInfo.read(values), ms))
            except (Corrupt, ValueError) as error:
                found.append(None)
                self._unreadable(task_id, error)
        return found

    def _unreadable(self, task_id: str, error: Exception) -> None:
        """To whoever asks it looks like none; the log says why, once."""
        if task_id not in self._told and len(self._told) < TOLD_MAX:
            self._told.add(task_id)
            log.warning("a record cannot be read: %s", error)

    async def read(self, ids: Sequence[str]) -> list[Task | None]:
        """Records in one round trip, whoever they belong to; None for what does not exist or cannot be read."""
        return await self._read(ids)

    def views(self, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        """As the API shows them in a list. A record with a damaged field is left out and told in the log: asked for
        alone it is an error, but it harms only its own task."""
        found = []
        for task in tasks:
            try:
                found.append(task.view())
            except (ValueError, ArithmeticError) as error:
                self._unreadable(task.id, error)
        return found

    async def list_tasks(
        self,
        owner: str,
        *,
        state: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        **equal: str | None,
    ) -> Page:
        """Newest first. `equal` filters by kind, sender, topic or priority. A call looks at SCAN_LIMIT records at most,
        so a page may be short although `cursor` leads on. Raises ValueError for a malformed cursor."""
        wanted = {name: value for name, value in equal.items() if value is not None}
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 17):
            raise ValueError("not a cursor of this list")
        where = keys.key("list", state or "all", owner)
        below = f"({cursor}" if cursor else "+inf"
        tasks: list[Task] = []
        looked = 0
        while True:
            step = min(limit - len(tasks), limit) if not wanted else 200
            with translated():
                rows = await self.redis.zrevrangebyscore(where, below, "-inf", start=0, num=step, withscores=True)
            found = await self._read([row[0].decode() for row in rows]) if rows else []
            for task, row in zip(found, rows, strict=True):
                below, cursor = f"({row[1]:.0f}", f"{row[1]:.0f}"
                looked += 1
                if task and all(task.text(name) == value for name, value in wanted.items()):
                    tasks.append(task)
                    if len(tasks) == limit:
                        return Page(tasks, cursor)
            if len(rows) < step:
                return Page(tasks, None)
            if looked >= SCAN_LIMIT:
                return Page(tasks, cursor)

    # owners: what moves a task

    async def recover(self, task_id: str, owner: str, *, actor: str, recovery_id: str) -> tuple[str, bool]:
        """paused -> recovering. Returns its id, and whether this call started it. Raises NotFound, Refused."""
        reply = await self._move("recover", task_id, owner, actor, recovery_id)
        return reply[1].decode(), reply[0] == b"OK"

    async def pause(self, task_id: str, owner: str, *, actor: str) -> State:
        """Pause, or ask the worker to. Returns the state now. Raises NotFound, Refused."""
        reply = await self._move("pause", task_id, owner, actor)
        return State(reply[1].decode())

    async def cancel(self, task_id: str, owner: str, *, actor: str) -> bool:
        """Cancel. Returns False when it was cancelled before. Raises NotFound, Refused."""
        reply = await self._move("cancel", task_id, owner, actor, self._keep, self._idem)
        return bool(reply[0] == b"OK")

    async def replay(self, task_id: str, owner: str, *, actor: str) -> int:
        """failed -> recovering with fresh budgets. Returns the generation. Raises NotFound, Refused."""
        return int((await self._move("replay", task_id, owner, actor, new_call()))[1])

    async def purge(self, task_id: str, owner: str, *, actor: str, idempotency_key: str | None = None) -> list[str]:
        """Remove a terminal task. Returns keys of objects to delete, again when the same key comes again.
        Raises NotFound, Refused."""
        call, keep = new_call(), AGAIN_MS
        if idempotency_key:
            call, keep = keys.idem(owner, f"{task_id} {idempotency_key}"), self._idem
        return [raw.decode() for raw in (await self._move("purge", task_id, owner, actor, call, keep))[1:]]

    async def _move(self, op: str, task_id: str, owner: str, *args: str | int) -> list[bytes]:
        if not keys.is_task_id(task_id):
            raise NotFound(task_id)
        reply: list[bytes] = await self.calls.call(op, keys.key("task", task_id), task_id, owner, *args)
        if reply[0] == b"NONE":
            raise NotFound(task_id)
        if reply[0] == b"REFUSED":
            state, due = reply[1].decode(), reply[2] if len(reply) > 2 else b""
            raise Refused(state, why(op, state, int(due) if due else None))
        return reply

    # dead letters

    async def dead_groups(self, owner: str, *, limit: int = 200) -> list[dict[str, Any]]:
        """Failed tasks by kind and error, newest first: group, count, kind, error and up to three examples."""
        with translated():
            groups = await self.redis.zrevrange(keys.key("groups", owner), 0, limit - 1)
            async with self.redis.pipeline(transaction=False) as pipe:
                for group in groups:
                    where = keys.key("group", owner, group.decode())
                    pipe.zcard(where)
                    pipe.zrevrange(where, 0, 2)
                replies = await pipe.execute()
        answer = []
        for group, count, examples in zip(groups, replies[::2], replies[1::2], strict=True):
            views = self.views([t for t in await self._read([raw.decode() for raw in examples]) if t])
            if count and views:
                newest = views[0]
                answer.append(
                    {
                        "group": group.decode(),
                        "count": count,
                        "kind": newest["kind"],
                        "error": newest["error"],
                        "last_failed_at": newest["finished_at"],
                        "examples": [view["task_id"] for view in views],
                    }
                )
        return answer

    async def dead_ids(self, owner: str, group: str | None = None, *, limit: int = 10_000) -> list[str]:
        """Ids of failed tasks, of one group or all, newest first."""
        where = keys.key("group", owner, group) if group else keys.key("list", "failed", owner)
        with translated():
            return [raw.decode() for raw in await self.redis.zrevrange(where, 0, limit - 1)]

    async def read_many(self, ids: Sequence[str], owner: str) -> list[Task]:
        """Those of `ids` that exist and belong to the owner."""
        return [t for t in await self._read(ids) if t and t.owner == owner]

    # upkeep

    async def reap(self, *, limit: int = 100) -> tuple[int, int]:
        """One bounded step: (due tasks made ready, lost leases)."""
        reply = await self.calls.call("reap", keys.key("leases"), self.settings.lease_ms, limit)
        return int(reply[0]), int(reply[1])

    async def sweep(self, *, limit: int = 100) -> tuple[int, list[str], list[str]]:
        """One bounded step of retention: how many tasks, keys of objects to delete, and ids of tasks whose result must
        be archived first (then `archived`)."""
        more = max(0, int((self.settings.record_s - self.settings.result_s) * 1000))
        archive = int(self.settings.archive)
        broken = int(self.settings.record_s * 1000)
        swept, objects, ids = await self.calls.call("sweep", keys.key("done"), limit, more, archive, broken)
        return int(swept), [raw.decode() for raw in objects], [raw.decode() for raw in ids]

    async def archived(self, task_id: str) -> bool:
        """The result is in the object store now. False: there is no such task any more."""
        return bool(await self.calls.call("archived", keys.key("task", task_id), task_id))

    async def hooks(
        self, *, limit: int, hold_s: float, per_owner: int = 0, busy: Mapping[str, int] | None = None
    ) -> list[tuple[str, str, int, Task]]:
        """Callbacks that are due: (member for `hook_end`, URL, number of this try, task); with `per_owner` only so
        many for one owner, `busy` counted. One whose record cannot be read comes due again later."""
        flat = [part for pair in (busy or {}).items() for part in pair]
        hold = int(hold_s * 1000)
        reply = await self.calls.call("hooks", keys.key("hooks"), limit, hold, per_owner, *flat)
        found = []
        for member, url, tries, record in reply:
            task_id = member.decode().rpartition(":")[0]
            try:
                found.append((member.decode(), url.decode(), int(tries), Task(task_id, pairs(record))))
            except (Corrupt, ValueError) as error:
                self._unreadable(task_id, error)
        return found

    async def hook_end(self, member: str, *, again_s: float | None, outcome: str) -> None:
        """A callback is over (`again_s` None), or is tried again in so many seconds."""
        delay = "" if again_s is None else int(again_s * 1000)
        await self.calls.call("hook_end", keys.key("hooks"), member, delay, outcome)

    async def admit(self, what: str, *, per_minute: int) -> float:
        """Count one more of `what`, at most so many in any minute. Returns 0, or the seconds to wait."""
        return int(await self.calls.call("admit", keys.key("times", what), per_minute)) / 1000

    async def take(self, bucket: str, *, per_minute: int, amount: int = 1) -> float:
        """Take from a token bucket. Returns 0, or the seconds to wait before trying again."""
        wait = await self.calls.call("take", keys.key("bucket", bucket), per_minute, per_minute, amount)
        return int(wait) / 1000

    async def time_ms(self) -> int:
        """Redis' clock."""
        with translated():
            now = await self.redis.time()
        return int(now[0]) * 1000 + int(now[1]) // 1000
