"""Objects that nobody refers to: left by a worker that died between the upload and the pointer, or by a delete that
failed. Found by looking, since nothing else remembers them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import obstore

from unbroken.tasks import keys
from unbroken.tasks.connection import Calls, translated
from unbroken.tasks.objects import Objects, task_of

log = logging.getLogger("unbroken.tasks.orphans")
PAGE = 200
GRACE_S = 3_600.0  # an upload that is under way has no pointer yet; far longer than any lease or upload


async def references(calls: Calls, task_ids: Sequence[str]) -> set[str]:
    """The keys of the objects that these tasks' checkpoints refer to. Raises StoreUnavailable."""
    with translated():
        async with calls.redis.pipeline(transaction=False) as pipe:
            for task_id in task_ids:
                pipe.hmget(keys.key("ckpt", task_id), "a.where", "b.where")
            rows = await pipe.execute()
    return {where.decode() for row in rows for where in row if where and where != b"inline"}


async def collect(objects: Objects, calls: Calls, *, grace_s: float = GRACE_S) -> int:
    """Delete checkpoints' objects that no checkpoint refers to and that are older than `grace_s`; returns how many.
    Names that are not ours are never touched. Raises StoreUnavailable and what the object store raises."""
    gone = 0
    async for page in obstore.list(objects.store, chunk_size=PAGE):
        now = datetime.now(UTC)  # the age of an object is no lease: minutes do not matter here
        old = {
            meta["path"]: task
            for meta in page
            if (task := task_of(meta["path"])) and (now - meta["last_modified"]).total_seconds() > grace_s
        }
        if not old:
            continue
        wanted = await references(calls, sorted(set(old.values())))
        for name in old:
            if name not in wanted:
                await objects.discard(name)
                gone += 1
        await asyncio.sleep(0)
    if gone:
        log.info("%d objects that no task refers to were deleted", gone)
    return gone
