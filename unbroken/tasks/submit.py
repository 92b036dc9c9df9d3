"""A submit that was found right, on its way into the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unbroken.tasks.record import Task


@dataclass(frozen=True, slots=True)
class NewTask:
    """A validated submit, ready to be stored. Times in ms; due_ms 0 = now; head_ms = head start of the priority."""

    owner: str
    kind: str
    input: dict[str, Any]
    unit: str
    total: int | None = None
    priority: str = "normal"
    sender: str | None = None
    topic: str | None = None
    recovery: str = "auto"
    max_attempts: int = 3
    max_crashes: int = 3
    timeout_ms: int = 3_600_000
    due_ms: int = 0
    head_ms: int = 0
    cache_ms: int = 0
    callback: str = ""
    title: str = ""
    extra: tuple[tuple[str, str], ...] = ()

    def fields(self) -> dict[str, str]:
        """The part of the record that the submit decides."""
        return {
            "kind": self.kind,
            "priority": self.priority,
            "sender": self.sender or "",
            "topic": self.topic or "",
            "recovery": self.recovery,
            "max_attempts": str(self.max_attempts),
            "max_crashes": str(self.max_crashes),
            "timeout_ms": str(self.timeout_ms),
            "total": "" if self.total is None else str(self.total),
            "unit": self.unit,
            "callback": self.callback,
            **dict(self.extra),
        }

    def first_view(self, task_id: str, created: int) -> Task:
        """The task as it was the moment it was accepted: the answer to a repeated submit is made from the body,
        which is the same, and the time."""
        start = {
            "owner": self.owner,
            "state": "pending",
            "epoch": str(created),
            "n": "1",
            "created": str(created),
        }
        start |= {"updated": str(created), "retry_at": str(self.due_ms) if self.due_ms > created else ""}
        fields = {name: value.encode() for name, value in (self.fields() | start).items()}
        return Task(task_id, fields, now=created)
