"""Where a claimed task continues: the text, the newest checkpoint that can be trusted, and what came after it (G10)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unbroken.tasks import codec
from unbroken.tasks.errors import Corrupt, StoreUnavailable, Transient, UnbrokenError
from unbroken.tasks.holder import Holder
from unbroken.tasks.kind import Kind, Tail
from unbroken.tasks.lease import Claimed, StoredCheckpoint
from unbroken.tasks.objects import Missing, Objects

log = logging.getLogger("unbroken.worker.resume")


class NothingToTrust(UnbrokenError):
    """Checkpoints exist and none of them can be used: the task waits for a person, it never starts from zero."""


@dataclass(slots=True)
class Resume:
    """The point to continue from. state None: from the start, or from the text alone."""

    raw: bytes
    text: str
    state: Mapping[str, Any] | None = None
    state_offset: int = 0
    tail: Sequence[Tail] = ()
    items: Mapping[int, Any] = field(default_factory=dict)


async def load(claimed: Claimed, kind: Kind, holder: Holder, objects: Objects) -> Resume:
    """Read it. Raises NothingToTrust, Transient (the object store is away), StoreUnavailable."""
    task_id = claimed.lease.task_id
    raw = await holder.text(task_id) if claimed.num("length") else b""
    found = Resume(raw, raw.decode("utf-8", "replace"))
    used = await _newest(claimed, kind, holder, objects, len(found.text), found)
    if kind.continues == "text":
        if found.text:
            found.tail = await holder.tail(task_id, used.event_id if used else "0-0")
    elif used is None and claimed.saved:
        raise NothingToTrust("no checkpoint of this task can be used")
    if kind.unit == "items":
        found.items = {index: _result(data) for index, data in (await holder.items(task_id)).items()}
    return found


def _result(data: bytes) -> Any:
    event = json.loads(data)
    return event["result"] if event.get("ok") else {"error": event.get("error")}


async def _newest(
    claimed: Claimed, kind: Kind, holder: Holder, objects: Objects, length: int, found: Resume
) -> StoredCheckpoint | None:
    limit = holder.settings.checkpoint_max
    refused = [f"{claimed.saved - len(claimed.checkpoints)} incomplete"] * (claimed.saved > len(claimed.checkpoints))
    used = None
    for stored in claimed.checkpoints:
        try:
            if stored.offset > length:
                raise Corrupt(f"it belongs to a text of {stored.offset} characters, there are {length}")
            found.state = await _state(stored, kind, objects, limit)
            found.state_offset = stored.offset
            used = stored
            break
        except (Corrupt, Missing) as error:
            refused.append(str(error))
    if refused:
        what = "the one before it was used" if used else "none is left"
        message = f"A checkpoint could not be used ({'; '.join(refused)}); {what}."
        log.error("%s: %s", claimed.lease.task_id, message)
        try:
            await holder.warn(claimed.lease, message)
        except StoreUnavailable:
            log.warning("%s: the warning could not be stored", claimed.lease.task_id)
    return used


async def _state(stored: StoredCheckpoint, kind: Kind, objects: Objects, limit: int) -> Mapping[str, Any]:
    if stored.where == "inline":
        return codec.unseal(stored.sealed, schema=kind.schema, limit=limit)
    try:
        return await objects.load(stored.where, stored.sealed, schema=kind.schema, limit=limit)
    except (Corrupt, Missing):
        raise
    except Exception as error:
        raise Transient(
            "checkpoint_unavailable", "The store of large checkpoints does not answer.", detail=repr(error)
        ) from error
