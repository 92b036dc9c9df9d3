"""What produces tokens. A backend is one class with one method; everything else (leases, checkpoints, writes,
rate limits, timeouts) is done around it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from unbroken.tasks.inputs import Generation
from unbroken.tasks.kind import Piece, Prefix, Rewind


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks, for request ids and for backends that must fail on purpose.

    request_id: derived from task and attempt, safe to send upstream. failures: how often this task has failed
    or lost its worker before."""

    task_id: str
    request_id: str
    attempt: int = 1
    failures: int = 0


class Backend(Protocol):
    """One source of tokens."""

    name: str

    def generate(self, ask: Generation, prefix: Prefix, call: Call) -> AsyncGenerator[Piece | Rewind, None]:
        """Yield the text behind `prefix`, as it comes. Closing the generator closes the upstream call at
        once: close it explicitly (`contextlib.aclosing`), a `break` alone leaves that to the
        garbage collector.

        A backend that cannot continue a text yields Rewind(0) first and starts over. It never repeats text of
        the prefix, never alters the seam. Raises Transient or Permanent; an upstream that ends without its
        end marker is Transient, not the end."""
        ...

    async def start(self) -> None:
        """Connect, or fail with a sentence that says what to do."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
