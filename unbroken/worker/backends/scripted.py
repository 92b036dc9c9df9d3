"""Deterministic text from a seed, with faults at a chosen place: for tests, load and demonstrations.

Token k is a pure function of (seed, messages, k). So a text is the same at any rate, over any number of
failures and resumes, and anybody can recompute it with `script_text` and compare byte for byte.

With UNBROKEN_SCRIPTED_RECORD=<folder> every model call appends one JSON line to `<folder>/calls.jsonl`, so
that a test can count the calls per item and see where each of them began.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from hashlib import blake2b
from pathlib import Path

from unbroken.tasks.errors import Permanent, Transient
from unbroken.tasks.inputs import Generation, Message, Script
from unbroken.tasks.kind import Piece, Prefix, Rewind
from unbroken.worker.backends.base import Call

# Words of many scripts and widths: one, two, three and four bytes, combining marks, joined emoji, right to
# left, and the characters that careless escaping breaks. Exactly 64, so that six bits choose one.
_VOCABULARY = (
    "lamp stone river north ember quiet signal harbour "
    "over glass seven winter paper amber field thread "
    "naïve façade Übung smørrebrød žluťoučký coöperate señal Łódź "
    "маяк море ветер огонь φάρος κύμα אור ضوء "
    "燈塔 海 風 波浪 ひかり うみ 등대 바다 "
    "🌊 🕯️ 👩\u200d🚀 🇳🇴 👍🏽 𝔘𝔫 cafe\u0301 a\u030a "
    'a<b R&D "quoted" it\'s back\\slash 50% {x} c# '
    "tide keeper rope salt gull beacon fog dawn"
)
_WORDS = _VOCABULARY.split()
# What follows the word and its number. Sixteen, so that four bits choose one.
_ENDS = (" ", " ", " ", " ", " ", " ", " ", " ", " ", ", ", ", ", ". ", "; ", " – ", ".\n", ".\n\n")

_MASK = (1 << 64) - 1
_BREATH = 50  # tokens between two chances for the event loop when nothing else makes us wait


def _key(seed: int, messages: Iterable[Message]) -> int:
    """64 bits out of the seed and the conversation; the same in every process (unlike `hash`)."""
    digest = blake2b(str(seed).encode(), digest_size=8)
    for message in messages:
        for part in (message.role, message.content):
            raw = part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(raw))
            digest.update(raw)
    return int.from_bytes(digest.digest(), "little")


def _speaker(key: int) -> Callable[[int], str]:
    """The function from k to token k of one text."""
    words, ends, mask = _WORDS, _ENDS, _MASK

    def token(k: int) -> str:
        # One multiply-xorshift round (the idea of splitmix64's finaliser): cheap, and neighbours differ.
        mixed = ((k + key) * 0x9E3779B97F4A7C15) & mask
        mixed = ((mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9) & mask
        return f"{words[mixed >> 58]}{k}{ends[(mixed >> 50) & 15]}"

    return token


def script_text(seed: int, tokens: int, messages: Iterable[Message] = ()) -> str:
    """The whole text that the scripted backend gives for this seed, number of tokens and conversation."""
    return "".join(map(_speaker(_key(seed, messages)), range(tokens)))


def script_of(ask: Generation) -> Script:
    """What to play: `ask.scripted`, or a script made of the ordinary `seed` and `max_tokens`."""
    if ask.scripted is not None:
        return ask.scripted
    default = Script(seed=ask.seed or 0)
    return default if ask.max_tokens is None else default.model_copy(update={"tokens": ask.max_tokens})


async def _find(token: Callable[[int], str], text: str, tokens: int) -> tuple[int, str] | None:
    """Where `text` ends: (next token, the rest of a token that `text` cuts). None when it is not ours."""
    at = k = 0
    while at < len(text):
        if k == tokens:
            return None
        word = token(k)
        if not text.startswith(word, at):
            rest = text[at:]
            return (k, word[len(rest) :]) if word.startswith(rest) else None
        at += len(word)
        k += 1
        if k % 2_000 == 0:
            await asyncio.sleep(0)
    return k, ""


class ScriptedBackend:
    """Plays `ask.scripted`. `record` is the folder for the list of calls, by default from the environment."""

    name = "scripted"

    def __init__(self, *, record: str | Path | None = None) -> None:
        folder = record or os.environ.get("UNBROKEN_SCRIPTED_RECORD")
        self._record = Path(folder) if folder else None

    async def start(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to release."""

    async def generate(self, ask: Generation, prefix: Prefix, call: Call) -> AsyncGenerator[Piece | Rewind, None]:
        """Yield one piece per token, each with `tokens=(k,)`.

        Raises Transient or Permanent, hangs, or kills its own process, where the script says so. A prefix
        that is not the beginning of this text leads to Rewind(0) and a fresh start."""
        script = script_of(ask)
        token = _speaker(_key(script.seed, ask.messages))
        place = await _find(token, prefix.text, script.tokens)
        self._note(call, script, place[0] if place else 0)
        if place is None:
            yield Rewind(0)
            place = (0, "")
        first, rest = place
        fault_at = _fault_at(script, call)
        if rest:  # the prefix ends inside a token: its remainder first
            yield Piece(rest, (first,))
            first += 1
        clock, began = time.monotonic, time.monotonic()
        per_token = 1 / script.rate if script.rate else 0.0
        for k in range(first, script.tokens):
            if k == fault_at:
                await _fault(script)
            if per_token:
                # Against an absolute schedule, so that oversleeping does not add up.
                wait = began + (k - first) * per_token - clock()
                if wait > 0:
                    await asyncio.sleep(wait)
            if k % _BREATH == 0:
                await asyncio.sleep(0)
            yield Piece(token(k), (k,))
        if fault_at is not None and max(first, script.tokens) == fault_at:
            await _fault(script)

    def _note(self, call: Call, script: Script, first: int) -> None:
        """Append one line for this call. O_APPEND and one write: lines of several processes do not mix."""
        if self._record is None:
            return
        line = {
            "task_id": call.task_id,
            "request_id": call.request_id,
            "attempt": call.attempt,
            "failures": call.failures,
            "seed": script.seed,
            "first": first,
            "pid": os.getpid(),
        }
        self._record.mkdir(parents=True, exist_ok=True)
        out = os.open(self._record / "calls.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(out, json.dumps(line).encode() + b"\n")
        finally:
            os.close(out)


def _fault_at(script: Script, call: Call) -> int | None:
    """The token before which this call fails, or None. Without `fail_at` it is the first, without `fail` the
    failure is transient."""
    if script.fail is None and script.fail_at is None:
        return None
    return (script.fail_at or 0) if call.failures < script.fail_times else None


async def _fault(script: Script) -> None:
    """Do what the script asks for; only "hang" and the errors are seen by the caller."""
    where = f"the script fails before token {script.fail_at or 0}"
    if script.fail == "permanent":
        raise Permanent("scripted", f"As asked, {where} for good.")
    if script.fail == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if script.fail in ("hang", "crash"):  # a process that is being killed says nothing more either
        await asyncio.Event().wait()
    raise Transient("scripted", f"As asked, {where}.")
