"""The recount: every index against every record, and every log against its text.

The record is the truth. An index that lost an entry, or a whole index that was deleted, is made again from the
records; the server does that in the background, `unbroken doctor` on request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from unbroken.tasks import keys
from unbroken.tasks.connection import translated
from unbroken.tasks.events import ZERO, parse_id
from unbroken.tasks.store import Store

PAGE = 200


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


async def recount(store: Store, *, repair: bool = False) -> Recount:
    """Compare every index with every record; with `repair`, make them agree. Safe while everything runs: each task
    is looked at and mended in one script. Entries without a record are taken out as well."""
    found = Recount()
    seen: set[str] = set()
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
    found.differences += [f"{where}: {task_id} has no record" for where, task_id in await _strays(store, repair)]
    return found


async def _strays(store: Store, repair: bool) -> list[tuple[str, str]]:
    strays = []
    for index in ("ready", "delayed", "leases", "paused", "dead", "done"):
        where = keys.key(index)
        with translated():
            async for raw, _ in store.redis.zscan_iter(where, count=PAGE):
                if not await store.redis.exists(keys.key("task", raw.decode())):
                    strays.append((index, raw.decode()))
                    if repair:
                        await store.redis.zrem(where, raw)
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
