"""kind `chain`: steps one after the other, each sees the text so far. A checkpoint after every step; a restart inside
a step continues that step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from unbroken.tasks.inputs import ChainInput, Message, Step
from unbroken.tasks.kind import Checkpoint, Kind, Progress, Rewind, Run, Text, Update
from unbroken.worker.kinds.answer import Answer, conversation, restored


def heading(step: Step, first: bool) -> str:
    """What stands above a step's text."""
    return f"{'' if first else chr(10) * 2}## {step.name}\n\n"


def question(steps: Sequence[Step], index: int, so_far: str) -> list[Message]:
    """A step's conversation: what was asked first, the text so far as the answer to it, and the step. A pure function
    of the text before the step, so a restart asks the same again."""
    now = Message(role="user", content=steps[index].prompt)
    if not so_far:
        return [now]
    return [Message(role="user", content=steps[0].prompt), Message(role="assistant", content=so_far), now]


class Chain(Kind):
    """Reasoning chains, and long articles section by section."""

    name = "chain"
    unit = "steps"
    continues = "text"
    Input = ChainInput

    def total(self, data: ChainInput) -> int | None:
        """One for each step."""
        return len(data.steps)

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """The steps from the one that the text has reached."""
        given: ChainInput = run.input
        at, start, kept = _place(run, given)
        text = run.text
        for index in range(at, len(given.steps)):
            step = given.steps[index]
            yield Progress(index, len(given.steps))
            if start is None:
                start = len(text)
                title = heading(step, index == 0)
                text += title
                yield Text(title, count=0, mark=index)
                answer = Answer()
            else:
                answer = restored(run, start + len(heading(step, index == 0)), kept)
            so_far, behind = text[:start], start + len(heading(step, index == 0))
            ask = conversation(given, question(given.steps, index, so_far))
            async with aclosing(answer.follow(run, ask, f"step-{index}")) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    if isinstance(piece, Rewind):
                        yield Rewind(behind)
                        continue
                    yield Text(piece.text, piece.tokens, piece.count, index)
                    yield Checkpoint(_State(index, start, answer), milestone=piece.save is not None)
            text = text[:behind] + answer.text
            start = kept = None
            yield Progress(index + 1, len(given.steps))
            yield Checkpoint({"step": index + 1}, milestone=True)


class _State:
    """What a checkpoint inside a step keeps; made only when it is saved."""

    def __init__(self, step: int, start: int, answer: Answer) -> None:
        self.step, self.start, self.answer = step, start, answer

    async def __call__(self) -> dict[str, Any]:
        return {"step": self.step, "start": self.start, **await self.answer.state()}


def _place(run: Run, given: ChainInput) -> tuple[int, int | None, Mapping[str, Any] | None]:
    """(step, where its heading starts or None before it, what the checkpoint kept of its answer)."""
    state = run.state or {}
    step, start = int(state.get("step", 0)), state.get("start")
    kept: Mapping[str, Any] | None = run.state if start is not None else None
    for chunk in run.tail:
        if start is not None and chunk.offset < start:
            start = None  # taken back to before the heading
        if chunk.text and chunk.mark is not None and (chunk.mark > step or (chunk.mark == step and start is None)):
            step, start, kept = chunk.mark, chunk.offset, None
    return min(step, len(given.steps)), start, kept
