"""Why a task cannot be moved as somebody asked, in words for that person: by what was asked and the task's state."""

from __future__ import annotations

from unbroken.tasks.events import iso

WHY: dict[tuple[str, str], str] = {
    ("recover", "completed"): "The task is completed; there is nothing to recover.",
    ("recover", "failed"): "The task has failed for good; replay it from the dead letters instead.",
    ("recover", "cancelled"): "The task was cancelled.",
    ("recover", "processing"): "The task is running and was never paused.",
    ("recover", "pending"): "The task has not started yet; it will be run as soon as a worker is free.",
    ("recover", "recovering"): "The task continues by itself as soon as a worker is free.",
    ("pause", "*"): "A task that is {state} cannot be paused.",
    ("cancel", "*"): "The task is {state} already.",
    ("replay", "*"): "Only failed tasks can be replayed; this one is {state}.",
    ("purge", "*"): "Only a task that has ended can be deleted; this one is {state}. Cancel it first.",
}
# The same where the task waits for its time.
LATER = {
    "pending": "The task has not started yet; it is to start at {at}.",
    "recovering": "The task continues by itself; its next try is at {at}.",
}


def why(op: str, state: str, due_ms: int | None = None) -> str:
    """A sentence; '' for what is never refused. due_ms: when a waiting task is to go on, if that time is set."""
    if due_ms is not None and state in LATER:
        return LATER[state].format(at=iso(due_ms))
    return WHY.get((op, state)) or WHY.get((op, "*"), "").format(state=state)
