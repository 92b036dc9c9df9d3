"""What every fault test asks afterwards: is each text exact, each log whole, each index right, and nothing doubled?"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
from redis.asyncio import Redis

from tests.support.desk import Desk
from tests.support.processes import Process, Stack
from tests.support.viewer import Viewer
from unbroken.tasks import keys
from unbroken.tasks.audit import check_log, recount
from unbroken.tasks.events import sha256
from unbroken.tasks.result import encode_batch
from unbroken.tasks.settings import Settings


@asynccontextmanager
async def direct(stack: Stack) -> AsyncIterator[Desk]:
    """The stack's database without any proxy between."""
    client = Redis.from_url(stack.valkey.url)
    try:
        yield Desk(client, Settings(redis_url=stack.valkey.url, lease_s=2))
    finally:
        await client.aclose()


async def sound(desk: Desk, ids: Iterable[str]) -> None:
    """Logs, texts, records and indexes agree, and each change of state has one audit entry."""
    assert (await recount(desk.store)).differences == []
    for task_id in ids:
        await straight(desk, task_id)
        assert await check_log(desk.store, task_id) == []
        assert await audit_chain(desk, task_id) == []


async def straight(desk: Desk, task_id: str) -> None:
    """Each piece of text begins where the one before ended: nothing was written twice, nobody was ever taken back.
    Only a kind whose state is the truth may do that."""
    if (await desk.store.get(task_id, None)).kind == "counting":
        return
    length = 0
    for event_id, name, data in await desk.log(task_id):
        if name == "chunk":
            chunk = json.loads(data)
            assert chunk["offset"] == length, f"{event_id} begins at {chunk['offset']}, the text has {length}"
            length += len(chunk["text"])


async def audit_chain(desk: Desk, task_id: str) -> list[str]:
    """One audit entry for each change: every `from` is the `to` before it, and the last `to` is the state."""
    state, wrong = "", []
    for _, entry in await desk.redis.xrange(keys.key("audit")):
        if entry[b"task"].decode() != task_id:
            continue
        before, after = entry[b"from"].decode(), entry[b"to"].decode()
        if state and before != state:
            wrong.append(f"audit says {entry[b'op'].decode()} {before} -> {after}, but the task was {state}")
        state = after
    now = (await desk.store.get(task_id, None)).state.value
    return wrong if state == now else [*wrong, f"audit ends with {state}, the task is {now}"]


async def leases_of(desk: Desk, task_id: str) -> int:
    """How often it was claimed, by the log."""
    return sum(b'"processing"' in data for _, name, data in await desk.log(task_id) if name == "status")


async def whole(stack: Stack, viewer: Viewer) -> None:
    """What this viewer holds is the stored result, by its own digest, and nothing was ever taken back from it."""
    assert viewer.end is not None
    assert viewer.end.name == "done"
    assert viewer.rewinds == 0
    if not viewer.items:
        viewer.check()
        return
    stored = await stack.api.http.get(f"/api/tasks/{viewer.task_id}/result", headers={"Accept": "application/json"})
    raw = {n: json.dumps(item, separators=(",", ":")).encode() for n, item in viewer.items.items()}
    assert stored.json() == json.loads(encode_batch(raw))
    assert viewer.end.data["sha256"] == sha256(stored.content)


async def read_to_end(stack: Stack, task_id: str, text: str, *, server: int = 0) -> Viewer:
    """A new viewer reads it all and must see exactly `text`."""
    viewer = await Viewer(stack.urls[server], task_id).follow()
    viewer.check()
    assert viewer.text == text
    return viewer


def lines(log: Path, pattern: str = "") -> list[str]:
    """Lines of a log that fit."""
    return [line for line in log.read_text(errors="replace").splitlines() if re.search(pattern, line)]


def cpu_s(process: Process) -> float:
    """Seconds of CPU that a process has used so far."""
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)
