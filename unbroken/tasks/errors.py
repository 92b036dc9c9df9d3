"""Every error with a meaning of its own, as one tree.

    UnbrokenError
    ├── TaskError                what ends or delays a task; stored with it and shown to its owner
    │   ├── Transient            worth another try (429, 5xx, a timeout, a reset)
    │   │   └── Unreached        nobody was there to be asked: waited out inside the run before it counts
    │   └── Permanent            another try would fail the same way (400, 401, 404, a refusal)
    ├── LeaseLost                a newer epoch exists, or the task is no longer running: stop, write nothing
    ├── Refused                  the caller asked for what the state of the task does not allow
    ├── NotFound                 no such task for this owner
    ├── Conflict                 an Idempotency-Key was used again with another body
    ├── StoreUnavailable         Redis cannot be reached or cannot write now; the same call may work later
    │   └── StoreRefuses         it answers, and lets nobody in with this password or database number
    └── Corrupt                  stored bytes do not decode: wrong digest, version, size or type

`TaskError` is theirs (a model, an input), `StoreUnavailable` is infrastructure, `Corrupt` and anything that is
not in this tree are ours.
"""

from __future__ import annotations


class UnbrokenError(Exception):
    """Base of all errors raised on purpose by this project."""


class TaskError(UnbrokenError):
    """A run went wrong.

    code: a short fixed word (`rate_limited`, `context_length`); behaviour depends on the type, never on digits in
    the message. message: one plain sentence for the owner. detail: for operators, may be long.
    retry_after_s: seconds the other side asked us to wait.
    """

    retryable = True

    def __init__(
        self, code: str, message: str, *, detail: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.detail = detail
        self.retry_after_s = retry_after_s


class Transient(TaskError):
    """Worth another try, up to `max_attempts` over the task's life."""


class Unreached(Transient):
    """The model could not be reached at all (refused, no such name, no connection in time, still loading): nothing was
    asked of it, so asking again costs nothing."""


class Permanent(TaskError):
    """Fails at once and goes to the dead letters."""

    retryable = False


class LeaseLost(UnbrokenError):
    """The caller no longer holds the task. `reason` is the state the task is in now, as far as known."""

    def __init__(self, reason: str = "lost") -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(UnbrokenError):
    """The operation is not allowed in the task's state. `why` is a sentence for people."""

    def __init__(self, state: str, why: str) -> None:
        super().__init__(why)
        self.state = state
        self.why = why


class NotFound(UnbrokenError):
    """No such task, or it belongs to somebody else: the two look the same on purpose (G16)."""


class Conflict(UnbrokenError):
    """The same Idempotency-Key came with a different body."""


class StoreUnavailable(UnbrokenError):
    """Redis is away, loading, read-only or full. `full` tells the last case apart."""

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class StoreRefuses(StoreUnavailable):
    """Redis answers, and refuses the password, the user or the number of the database: waiting changes nothing."""


class Corrupt(UnbrokenError):
    """Stored bytes cannot be trusted. Never read as "nothing was stored"."""
