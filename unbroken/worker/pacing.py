"""When to save, how long to wait, which errors are the same error. Pure."""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass

SAVING_SHARE = 60  # saving may take one part in so many of the time, however large the state has become ...
APART_MAX_S = 60.0  # ... but saves that are due are never further apart than this because of it
RETRY_AFTER_MAX_S = 86_400.0  # what another side may ask of us


@dataclass(slots=True)
class CheckpointPace:
    """Every `tokens` tokens or `seconds` seconds since the last save, whichever comes first. Times in seconds of any
    steady clock. A save that is slow (a large state, a far object store) spaces the next ones out."""

    tokens: int
    seconds: float
    since: float
    made: int = 0
    not_before: float = 0.0

    def count(self, tokens: int) -> None:
        """Tokens were generated."""
        self.made += tokens

    def due(self, now: float) -> bool:
        """Is it time to save the point that is offered now?"""
        if now < self.not_before:
            return False
        return self.made >= self.tokens or now - self.since >= self.seconds

    def tried(self, now: float, took: float) -> None:
        """A save was made, or failed; both count, so that a broken store is not asked at every token."""
        self.made = 0
        self.since = now
        self.not_before = now + min(APART_MAX_S, SAVING_SHARE * took)


def full_jitter(tries: int, *, base: float, cap: float, roll: float) -> float:
    """Seconds before try number `tries` + 1: anywhere in [0, min(cap, base * 2^tries)] by `roll` in [0, 1).

    Full jitter, so that a thousand tasks that failed together do not come back together."""
    return roll * min(cap, base * 2.0 ** min(tries, 60))


def retry_delay(errors: int, *, base: float, cap: float, retry_after: float | None, roll: float) -> float:
    """Seconds until a task that has failed `errors` times before may run again. What the other side asked for
    (`retry_after`) is a lower bound, and the jitter comes on top of it."""
    delay = full_jitter(errors, base=base, cap=cap, roll=roll)
    if retry_after is None or retry_after <= 0:
        return delay
    floor = min(retry_after, RETRY_AFTER_MAX_S)
    return max(delay, floor + roll * min(base, floor))


def between(low: float, high: float) -> float:
    """A random time, to keep processes out of step."""
    return random.uniform(low, high)  # noqa: S311 - not a secret


# Long before short: a UUID would otherwise leave its letters behind.
_VARIABLE = re.compile(
    r"""(?:https?://|\w+://)\S+                        # addresses
      | (?:\d{1,3}\.){3}\d{1,3}(?::\d+)?               # IPv4, with a port
      | \[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\](?::\d+)?     # IPv6 in brackets
      | s\d{1,3}-[0-9a-hjkmnp-tv-z]{26}                # a task
      | [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}
      | \b0x[0-9a-fA-F]+\b
      | \b(?:[A-Za-z]{1,12}[-_])?(?=[0-9A-Za-z]*\d)[0-9A-Za-z]{12,}\b   # req_9f8e..., tokens of all sorts
      | \b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{6,}\b
      | \d+(?:[.,:]\d+)*""",
    re.VERBOSE,
)


def normalised(message: str) -> str:
    """The message without what differs from one occurrence of an error to the next: digits, ids, addresses."""
    return " ".join(_VARIABLE.sub("#", message[:2_000]).split())


def fingerprint(kind: str, code: str, message: str) -> str:
    """The group of an error among the dead letters: 16 hex digits."""
    raw = "\x00".join((kind, code, normalised(message)))
    return hashlib.sha256(raw.encode("utf-8", "replace")).hexdigest()[:16]
