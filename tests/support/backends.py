"""Small helpers to ask a backend and to gather its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unbroken.tasks.inputs import Generation, Message
from unbroken.tasks.kind import Piece, Prefix, Rewind
from unbroken.worker.backends.base import Backend, Call


def ask(prompt: str, **settings: Any) -> Generation:
    """One user message and what else the call may set."""
    return Generation(messages=[Message(role="user", content=prompt)], **settings)


def call(task_id: str = "t1", request_id: str = "t1-1", *, attempt: int = 1, failures: int = 0) -> Call:
    """A call of an ordinary task."""
    return Call(task_id, request_id, attempt, failures)


@dataclass
class Answer:
    """All that a backend yielded, in order."""

    pieces: list[Piece] = field(default_factory=list)
    rewinds: list[int] = field(default_factory=list)

    def add(self, update: Piece | Rewind) -> None:
        """Take one update; a rewind drops the text before it."""
        if isinstance(update, Rewind):
            self.rewinds.append(update.offset)
            self.pieces.clear()
        else:
            self.pieces.append(update)

    @property
    def text(self) -> str:
        """The text of all pieces behind the last rewind."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids of all pieces behind the last rewind."""
        return tuple(token for piece in self.pieces for token in piece.tokens)

    @property
    def count(self) -> int:
        """How many tokens the pieces say they stand for."""
        return sum(piece.count for piece in self.pieces)


async def collect(
    backend: Backend,
    asked: Generation,
    prefix: Prefix | None = None,
    who: Call | None = None,
    into: Answer | None = None,
) -> Answer:
    """Run one call to its end. Raises what the backend raises; `into` then still has what came before."""
    answer = Answer() if into is None else into
    async for update in backend.generate(asked, prefix or Prefix(), who or call()):
        answer.add(update)
    return answer
