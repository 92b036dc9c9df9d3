"""One answer of a model inside a task: what exists of it, how it is continued, and what a checkpoint keeps of it."""

from __future__ import annotations

import logging
from array import array
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from unbroken.tasks.inputs import Generation, Message, Sampling
from unbroken.tasks.kind import Piece, Prefix, Rewind, Run, Tail

log = logging.getLogger("unbroken.worker.kinds")
TOKENS_MAX = 1_000_000  # ids kept in a checkpoint; beyond, the text alone continues the answer
MESSAGE_FIELDS = ("model", "max_tokens", "temperature", "seed", "stop", "scripted")


def conversation(given: Sampling, messages: Sequence[Message]) -> Generation:
    """A model call with the task's own way of sampling."""
    head = [Message(role="system", content=given.system)] if given.system else []
    sampling = {name: getattr(given, name) for name in MESSAGE_FIELDS}
    return Generation(messages=[*head, *messages], **sampling)


class Answer:
    """Text and ids of one answer. tokens None: not all ids are known."""

    def __init__(self, text: str = "", tokens: list[int] | None = None, count: int = 0) -> None:
        self.parts = [text] if text else []
        self.length = len(text)
        self.tokens = tokens if tokens is not None else ([] if not text else None)
        self.count = count
        self.slot: bytes | None = None
        self._piece: Piece | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.parts)

    def prefix(self) -> Prefix:
        """For the backend."""
        return Prefix(self.text, tuple(self.tokens or ()), self.count, self.slot)

    def clear(self) -> None:
        """The backend starts over."""
        self.parts, self.length, self.tokens, self.count, self.slot = [], 0, [], 0, None

    def add(self, piece: Piece) -> None:
        """One more piece."""
        if piece.text:
            self.parts.append(piece.text)
            self.length += len(piece.text)
        self.count += piece.count
        if self.tokens is not None:
            if piece.text and not piece.tokens:
                self.tokens = None
            else:
                self.tokens.extend(piece.tokens)

    async def state(self, *, slot: bool = True) -> dict[str, Any]:
        """What a checkpoint keeps: the ids, and the newest state of the backend itself that could be had. That state
        is of this very moment where the last piece carries one, else of an earlier one; both save computing."""
        state: dict[str, Any] = {"count": self.count}
        packed = pack_ids(self.tokens)
        if packed is not None:
            state["tokens"] = packed
        if not slot:
            return state
        if self._piece is not None and self._piece.save is not None:
            try:
                self.slot = await self._piece.save()
            except Exception as error:  # the ids are enough to continue
                log.warning("the backend's state was not saved: %r", error)
        if self.slot is not None:
            state["slot"] = self.slot
        return state

    async def follow(self, run: Run, ask: Generation, part: str = "") -> AsyncIterator[Piece | Rewind]:
        """Continue it: yields pieces as they come (already added), and Rewind(0) where the backend starts over."""
        async with aclosing(run.generate(ask, self.prefix(), part=part)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, Rewind):
                    self.clear()
                else:
                    self.add(piece)
                    self._piece = piece
                yield piece
                self._piece = None  # its state is gone as soon as the next one is asked for


def pack_ids(tokens: Iterable[int] | None) -> bytes | None:
    """Ids as little-endian 32-bit numbers; None when they are unknown, too many or too large."""
    if tokens is None:
        return None
    try:
        ids = array("I", tokens)
    except (OverflowError, TypeError):
        return None
    return ids.tobytes() if len(ids) <= TOKENS_MAX else None


def unpack_ids(raw: Any) -> list[int] | None:
    """The way back; None for anything else."""
    if not isinstance(raw, bytes) or len(raw) % 4:
        return None
    ids = array("I")
    ids.frombytes(raw)
    return ids.tolist()


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of an answer: from, to (code points), its ids (None: unknown), how many tokens, and whether it is what
    the checkpoint holds."""

    begin: int
    end: int
    ids: Sequence[int] | None
    count: int
    saved: bool = False


def restored(run: Run, start: int, state: Mapping[str, Any] | None) -> Answer:
    """The answer that begins at `start` (code points) and reaches to the end of the text. `state`: what a checkpoint
    kept of this very answer, or None."""
    spans: list[_Span] = []
    if state is not None:
        ids = unpack_ids(state.get("tokens"))
        spans.append(_Span(start, run.state_offset, ids, int(state.get("count", 0)), saved=True))
    for chunk in run.tail:
        _fold(spans, chunk, start)
    text = run.text[start:]
    reaches = spans[-1].end if spans else start
    tokens: list[int] | None = None
    if reaches == len(run.text) and all(span.ids is not None for span in spans):
        tokens = [i for span in spans for i in span.ids or ()]
    answer = Answer(text, tokens, sum(span.count for span in spans))
    if state is not None and any(span.saved for span in spans) and isinstance(state.get("slot"), bytes):
        answer.slot = state["slot"]
    return answer


def _fold(spans: list[_Span], chunk: Tail, start: int) -> None:
    """One chunk of the log: what it takes back, and what it adds."""
    while spans and spans[-1].end > chunk.offset:
        cut = spans.pop()
        if cut.begin < chunk.offset:  # inside: which of its ids remain is unknown
            share = (chunk.offset - cut.begin) / (cut.end - cut.begin)
            spans.append(_Span(cut.begin, chunk.offset, None, int(cut.count * share)))
    if chunk.text and chunk.offset >= start:
        ids = chunk.tokens or None
        count = len(chunk.tokens) or max(1, len(chunk.text) // 4)
        spans.append(_Span(chunk.offset, chunk.offset + len(chunk.text), ids, count))
