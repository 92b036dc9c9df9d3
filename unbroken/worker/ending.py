"""What `done` says about the result: its length in characters and the digest of its bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from unbroken.tasks import events
from unbroken.tasks.holder import Holder
from unbroken.tasks.kind import Kind
from unbroken.tasks.lease import Lease
from unbroken.tasks.result import encode_batch
from unbroken.worker.writer import Writer


@dataclass(frozen=True, slots=True)
class Result:
    """Length in code points, SHA-256 as hex."""

    length: int
    sha256: str


async def result_of(kind: Kind, holder: Holder, lease: Lease, writer: Writer) -> Result:
    """The text, or for a kind of items the canonical JSON of them. A batch with failed items says so on the task."""
    if kind.unit != "items":
        return Result(writer.chars, writer.digest)
    items = await holder.items(lease.task_id)
    failed = sum(not json.loads(data).get("ok") for data in items.values())
    if failed:
        await holder.warn(lease, f"{failed} of {len(items)} items failed.")
    whole = encode_batch(items)
    return Result(len(whole.decode()), events.sha256(whole))
