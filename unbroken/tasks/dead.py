"""Another try for many dead letters at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from unbroken.tasks import keys
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.refusals import why
from unbroken.tasks.store import Store, new_call

log = logging.getLogger("unbroken.tasks")
AT_ONCE = 200  # scripts in one round trip
NO_TASK = "There is no such task."
DAMAGED = "What is stored of this task is damaged."


async def replay_many(store: Store, ids: Sequence[str], owner: str, *, actor: str) -> tuple[list[str], dict[str, str]]:
    """Replay each of `ids`, each in one script, so that of many calls at once exactly one gets each task. Returns the
    ids that this call brought back, and the others with a sentence why not. Raises StoreUnavailable; what was done by
    then stays done, and the same call again does the rest."""
    done: list[str] = []
    refused: dict[str, str] = {}
    known, call = [], new_call()
    for task_id in dict.fromkeys(ids):
        if keys.is_task_id(task_id):
            known.append(task_id)
        else:
            refused[task_id] = NO_TASK
    for at in range(0, len(known), AT_ONCE):
        part = known[at : at + AT_ONCE]
        calls = [("replay", keys.key("task", task_id), (task_id, owner, actor, call)) for task_id in part]
        for task_id, reply in zip(part, await store.calls.call_many(calls), strict=True):
            if isinstance(reply, StoreUnavailable):
                raise reply
            match reply:
                case [b"OK", *_]:
                    done.append(task_id)
                case [b"REFUSED", state]:
                    refused[task_id] = why("replay", state.decode())
                case Exception():  # a damaged record harms only its task
                    log.warning("%s cannot be replayed: %s", task_id, reply)
                    refused[task_id] = DAMAGED
                case _:
                    refused[task_id] = NO_TASK
    return done, refused
