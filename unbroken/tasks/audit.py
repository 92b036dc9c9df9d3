"""The recount: every index against every record, and every log against its text.

The record is the truth. An index that lost an entry, or a whole index that was deleted, is made again from the
records; the server does that in the background, `unbroken doctor` on request."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from unbroken.tasks import keys
from unbroken.tasks.connection import translated
from unbroken.tasks.events import ZERO, parse_id
from unbroken.tasks.store import Store

PAGE = 200
Rest = Callable[[float], Awaitable[None]]


@dataclass
class Recount:
    """What a recount found. `differences` is empty when all is well."""

    tasks: int = 0
    differences: list[str] = field(default_factory=list)


async def task_ids(store: Store) -> AsyncIterator[list[str]]:
    """Ids of all tasks, in pages, found by SCAN (no index is trusted)."""
    start = len(keys.key("task", ""))
    cursor = 0
    while True:
        with translated():
            cursor, page = await store.redis.scan(cursor, match=keys.key("task", "*"), count=PAGE)
        yield [raw.decode()[start:] for raw in page]
        if cursor == 0:
            return


async def recount(store: Store, *, repair: bool = False, rest: Rest | None = None) -> Recount:
    """Compare every index with every record; with `repair`, make them agree. Safe while everything runs: each task
    is looked at and mended in one script. Entries without a record are taken out as well. `rest` is called after each
    page with the seconds that it took, so that a million tasks are not counted at the cost of all others."""
    found = Recount()
    seen: set[str] = set()
    began = time.monotonic()
    async for page in task_ids(store):
        fresh = [task_id for task_id in page if task_id not in seen]
        seen.update(fresh)
        calls = [("mend", keys.key("task", task_id), (task_id, int(repair))) for task_id in fresh]
        for task_id, reply in zip(fresh, await store.calls.call_many(calls) if calls else [], strict=True):
            found.tasks += 1
            if isinstance(reply, Exception):
                found.differences.append(f"{task_id}: {reply}")
            else:
                found.differences += [f"{task_id}: {what.decode()}" for what in reply]
        if rest is not None:
            await rest(time.monotonic() - began)
        began = time.monotonic()
    found.differences += [f"{where}: {task_id} has no record" for where, task_id in await _strays(store, repair, rest)]
    return found


async def _strays(store: Store, repair: bool, rest: Rest | None) -> list[tuple[str, str]]:
    strays = []
    for index in ("ready", "delayed", "leases", "paused", "dead", "done"):
        where, cursor = keys.key(index), 0
        while True:
            began = time.monotonic()
            with translated():
                cursor, rows = await store.redis.zscan(where, cursor, count=PAGE)
                ids = [raw.decode() for raw, _ in rows]
                async with store.redis.pipeline(transaction=False) as pipe:
                    for task_id in ids:
                        pipe.exists(keys.key("task", task_id))
                    there = await pipe.execute() if ids else []
                lost = [task_id for task_id, known in zip(ids, there, strict=True) if not known]
                strays += [(index, task_id) for task_id in lost]
                if lost and repair:
                    await store.redis.zrem(where, *lost)
            if rest is not None:
                await rest(time.monotonic() - began)
            if int(cursor) == 0:
                break
    return strays


async def check_log(store: Store, task_id: str) -> list[str]:
    """Read a task's whole log as a viewer would and compare it with what is stored (G1). Empty when all is well.
    Only for a task at rest: a running one moves under our eyes."""
    task = await store.get(task_id, None)
    if task.num("shed"):
        return []
    wrong: list[str] = []
    text, last, after, ends = "", ZERO, "0-0", 0
    while page := await store.events(task_id, after, count=1_000):
        for raw_id, name, data in page:
            after = raw_id
            event_id = parse_id(raw_id)
            if event_id.n != last.n + 1 or event_id.epoch < last.epoch:
                wrong.append(f"event {raw_id} follows {last}")
            last = event_id
            ends += name in ("done", "failed", "cancelled")
            if name == "chunk":
                chunk = json.loads(data)
                if chunk["offset"] > len(text):
                    wrong.append(f"event {raw_id} leaves a gap at {len(text)}")
                text = text[: chunk["offset"]] + chunk["text"]
    stored = (await store.text(task_id)) or b""
    if text.encode() != stored:
        wrong.append(f"the log folds to {len(text)} characters, stored are {len(stored)} bytes")
    if str(last) != task.last_event_id:
        wrong.append(f"the record names {task.last_event_id}, the log ends with {last}")
    if ends != task.num("generation") - (not task.terminal):
        wrong.append(f"{ends} terminal events in generation {task.num('generation')}, {task.state}")
    return [f"{task_id}: {what}" for what in wrong]
