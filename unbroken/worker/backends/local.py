"""Answers from the local llama.cpp server (`llama.py`), continued by token ids and, where saved, by
computed state.

An answer is made of bursts: requests of 64 tokens, each continuing the one before on the same slot with its
cache, so that nothing is computed twice (measured: one prompt token evaluated per burst, which is the
decode step that was due anyway). Between bursts the slot is idle, and only an idle slot can be saved: the
server defers a save until the slot's request has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

from unbroken.tasks.errors import Permanent, Transient
from unbroken.tasks.inputs import Generation, Message
from unbroken.tasks.kind import Piece, Prefix, Rewind
from unbroken.worker.backends.base import Call
from unbroken.worker.backends.llama_client import About, Chunk, End, LlamaClient
from unbroken.worker.backends.slots import Slots
from unbroken.worker.backends.stops import Stops
from unbroken.worker.backends.waiting import until

BURST = 64  # tokens; about 0.8 s, so a checkpoint with state is never further away than that
TEMPERATURE = 0.7  # the model repeats itself endlessly at 0
MAX_TOKENS = 1_024
STATE_MAX = 64 << 20  # bytes; about 2,900 tokens of the bundled model
_START_S = 30.0


@dataclass
class _Answer:
    """One call: the slot it holds and all token ids so far, prompt included."""

    slot: int
    about: About
    ids: list[int]
    left: int
    settings: dict[str, float]
    seed: int
    stops: Stops
    burst: int = 0
    over: bool = False
    pending: list[int] = field(default_factory=list)
    """Ids of tokens that show no text; they belong to the piece that follows."""


class LocalBackend:
    """The server at `url`. `slot_dir` is the folder it was started with, None when it is out of reach (then
    texts are continued by token ids only).

    evaluated, reused: prompt tokens that were computed, and that were found computed, over this object's
    life."""

    name = "local"

    def __init__(
        self,
        url: str,
        *,
        slot_dir: Path | None = None,
        connect_timeout_s: float = 10,
        first_token_timeout_s: float = 120,
        max_tokens: int = MAX_TOKENS,
        state_max: int = STATE_MAX,
    ) -> None:
        self._url = url
        self._client = LlamaClient(url, connect_timeout_s=connect_timeout_s, wait_s=first_token_timeout_s)
        self._slots = Slots(self._client, slot_dir, state_max=state_max)
        self._max_tokens = max_tokens
        self.evaluated = 0
        self.reused = 0

    async def start(self) -> None:
        """Wait for the model to be loaded. Transient with advice when it is not there after 30 s."""
        self._slots.prepare()
        try:
            await until(self._client.about, _START_S)
        except Transient as error:
            raise Transient(
                "model_unavailable",
                f"No local model answers at {self._url}: start `unbroken up`, or set UNBROKEN_LOCAL_URL.",
                detail=error.detail,
            ) from error

    async def close(self) -> None:
        """Release connections."""
        await self._client.close()

    async def generate(self, ask: Generation, prefix: Prefix, call: Call) -> AsyncGenerator[Piece | Rewind, None]:
        """Continue `prefix`, or start. Every piece's tokens are exactly those behind its text; the last
        piece of a burst can be saved. Ends at the model's end, at max_tokens, at a stop string, or when its
        context is full.

        Raises Permanent("context_length") when the prompt alone does not fit."""
        about = await self._client.about()  # each time: the server may be a new one, with another model
        async with self._slots.lease(about.slots) as slot:
            prompt = await self._prompt(ask)
            if len(prompt) >= about.context:
                raise Permanent("context_length", "The prompt is longer than the local model can read.")
            shown = await self._shown(prefix, about)
            if shown is None:
                yield Rewind(0)
                shown, prefix = [], Prefix()
            answer = self._begin(ask, call, slot, about, prompt, shown)
            # What was made before: `count` where known, so that a limit means the same before and after a
            # cut.
            answer.left -= prefix.count or len(shown)
            if shown and answer.left > 0 and len(answer.ids) < about.context:
                await self._slots.restore(slot, about, prefix.state)
            while not answer.over and answer.left > 0 and len(answer.ids) < about.context:
                async with aclosing(self._burst(answer)) as pieces:
                    async for piece in pieces:
                        yield piece
            for piece in answer.stops.flush():
                yield piece

    def _begin(
        self,
        ask: Generation,
        call: Call,
        slot: int,
        about: About,
        prompt: Sequence[int],
        shown: Sequence[int],
    ) -> _Answer:
        temperature = TEMPERATURE if ask.temperature is None else ask.temperature
        return _Answer(
            slot=slot,
            about=about,
            ids=[*prompt, *shown],
            left=ask.max_tokens or self._max_tokens,
            settings={"temperature": temperature},
            # Not the request id: that changes with every attempt, and a resume should draw the same numbers.
            seed=ask.seed if ask.seed is not None else _number(call.task_id),
            stops=Stops(ask.stop or ()),
        )

    async def _burst(self, answer: _Answer) -> AsyncGenerator[Piece, None]:
        """One request. Updates `answer`."""
        size = min(BURST, answer.left)
        answer.burst += 1
        body = {
            **answer.settings,
            "prompt": answer.ids,
            "n_predict": size,
            "id_slot": answer.slot,
            # A sampler starts anew with each request: with one seed for all, every burst would draw alike.
            "seed": _number(f"{answer.seed}:{len(answer.ids)}"),
        }
        seen, before = 0, len(answer.ids)
        last: list[Piece] = []  # waits for the end of the burst, so that it can carry `save`
        async with aclosing(self._client.complete(body)) as stream:
            async for event in stream:
                if isinstance(event, End):
                    self._account(answer, event, size, seen, len(answer.ids) == before)
                    break
                piece = await self._piece(answer, event, event.predicted - seen)
                seen = event.predicted
                if piece is None:
                    continue
                answer.left -= piece.count
                ready = answer.stops.feed(piece)
                if answer.stops.found or event.predicted >= size:
                    last = ready
                    if answer.stops.found:
                        answer.over = True
                        break
                else:
                    for one in ready:
                        yield one
        for number, one in enumerate(last):
            final = number == len(last) - 1 and not answer.over
            yield replace(one, save=partial(self._save, answer, answer.burst)) if final else one

    async def _piece(self, answer: _Answer, chunk: Chunk, count: int) -> Piece | None:
        """The piece of this chunk, or None while there is no text."""
        if not chunk.text:
            # Without text and with an id: a control token. The end marker comes like this too, right before
            # the End; it must not stay in the ids, because behind it the model starts a new turn.
            if chunk.last is not None:
                answer.pending.append(chunk.last)
            return None
        tokens = [chunk.last] if count == 1 and chunk.last is not None else None
        if tokens is None:
            # Characters of several tokens: the server told the last id only. Any ids with exactly this text
            # serve.
            tokens = await self._client.tokenize(chunk.text, special=False)
            if await self._client.detokenize(tokens) != chunk.text:
                answer.ids += tokens
                return Piece(chunk.text, (), count)
        tokens = answer.pending + tokens
        answer.pending = []
        answer.ids += tokens
        return Piece(chunk.text, tuple(tokens), count)

    def _account(self, answer: _Answer, end: End, size: int, seen: int, stuck: bool) -> None:
        """Decide whether the answer goes on after this burst."""
        self.evaluated += end.evaluated
        self.reused += end.cached
        # Tokens after the last chunk are half a character (at most three tokens): the next burst makes them
        # again, except at the very limit, where they never become text.
        cut = end.predicted - seen
        full = end.predicted < size
        answer.over = end.why != "limit" or full or stuck or answer.left - cut <= 0
        answer.pending = []

    async def _save(self, answer: _Answer, burst: int) -> bytes:
        """The slot's state. b"" once the next burst has begun, or when there is none to be had."""
        if burst != answer.burst or answer.over:
            return b""
        return await self._slots.save(answer.slot, answer.about, answer.ids)

    async def _shown(self, prefix: Prefix, about: About) -> list[int] | None:
        """The ids of the prefix; None when no ids give exactly its text. Ids of another model do not pass."""
        if not prefix.text:
            return []
        known = range(int(about.model.get("n_vocab", 0)))  # others make the server answer 500
        usable = bool(prefix.tokens) and all(token in known for token in prefix.tokens)
        if usable and await self._client.detokenize(prefix.tokens) == prefix.text:
            return list(prefix.tokens)
        tokens = await self._client.tokenize(prefix.text, special=False)
        return tokens if await self._client.detokenize(tokens) == prefix.text else None

    async def _prompt(self, ask: Generation) -> list[int]:
        """The conversation's token ids, through the model's own template.

        Control tokens spelt out in somebody's message stay letters: otherwise a text could end its own turn
        and speak as the system."""
        messages = list(ask.messages)
        if ask.system:
            messages.insert(0, Message(role="system", content=ask.system))
        spoken = "\n".join(message.content for message in messages)
        if await self._client.tokenize(spoken, special=False) == await self._plain(spoken):
            return await self._client.tokenize(await self._client.render(messages), special=True)
        return await self._guarded(messages)

    async def _plain(self, text: str) -> list[int]:
        """Tokens with control tokens understood, without the begin marker that some models put first."""
        tokens = await self._client.tokenize(text, special=True)
        begin = await self._client.tokenize("", special=True)
        return tokens[len(begin) :] if begin and tokens[: len(begin)] == begin else tokens

    async def _guarded(self, messages: Sequence[Message]) -> list[int]:
        """Render with stand-ins for the contents, then put the contents in as plain tokens."""
        marks = [f"unbroken{_number(message.content)}x{k}y" for k, message in enumerate(messages)]
        stand_ins = [Message(role=m.role, content=mark) for m, mark in zip(messages, marks, strict=True)]
        rest = await self._client.render(stand_ins)
        ids: list[int] = []
        for mark, message in zip(marks, messages, strict=True):
            before, found, rest = rest.partition(mark)
            if not found:
                raise Permanent("bad_request", "The local model's template does not take these messages.")
            ids += await (self._plain(before) if ids else self._client.tokenize(before, special=True))
            ids += await self._client.tokenize(message.content, special=False)
        return ids + await self._plain(rest)


def _number(text: str) -> int:
    """A stable number of 32 bits out of a text; the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")
