"""kind `text`: one answer, continued exactly where it stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from unbroken.tasks.inputs import Message, TextInput
from unbroken.tasks.kind import Checkpoint, Kind, Progress, Rewind, Run, Text, Update
from unbroken.tasks.registry import text_total
from unbroken.worker.kinds.answer import conversation, restored


class TextKind(Kind):
    """A prompt or a conversation, and the answer."""

    name = "text"
    unit = "tokens"
    continues = "text"
    Input = TextInput

    def total(self, data: TextInput) -> int | None:
        """Tokens at most."""
        return text_total(data)

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """One model call behind what exists."""
        given: TextInput = run.input
        messages = given.messages or [Message(role="user", content=given.prompt or "")]
        answer = restored(run, 0, run.state)
        async with aclosing(answer.follow(run, conversation(given, messages))) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, Rewind):
                    yield Rewind(0)
                    yield Progress(0, self.total(given))
                    continue
                yield Text(piece.text, piece.tokens, piece.count)
                # The backend's own state can be had at some pieces only: those are worth saving.
                yield Checkpoint(answer.state, milestone=piece.save is not None)
