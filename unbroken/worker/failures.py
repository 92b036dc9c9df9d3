"""What an exception means: for the owner, for operators, and for the next try. Pure."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass

from unbroken.tasks.errors import Permanent, TaskError, Transient
from unbroken.worker.pacing import fingerprint

DETAIL_MAX = 4_000  # characters of the operators' detail
MESSAGE_MAX = 500


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure. error: JSON {code, message, retryable} for the owner. group: fingerprint among the dead letters."""

    code: str
    retryable: bool
    error: bytes
    detail: str
    group: str
    retry_after_s: float | None = None


def understood(error: BaseException, kind: str) -> Failure:
    """Sort an exception. What is not a TaskError came from a kind's own code: its text is for operators only, since
    it may hold anything; the owner sees its type."""
    if isinstance(error, TaskError):
        code, message, told = error.code, error.message, error.message
        told_us = f"{error.detail}\n" if error.detail else ""
        # not the errors behind it: what another server said is in `detail`, without keys
        detail = told_us + "".join(traceback.format_exception(error, chain=False))
        retry_after = error.retry_after_s if isinstance(error, Transient) else None
        retryable = not isinstance(error, Permanent) and error.retryable
    else:
        code, told, retry_after, retryable = "unexpected", str(error), None, True
        message = f"The task stopped with an unexpected {type(error).__name__}."
        detail = "".join(traceback.format_exception(error))
    message = _fit(message, MESSAGE_MAX)
    body = json.dumps({"code": code, "message": message, "retryable": retryable}, ensure_ascii=True).encode()
    group = fingerprint(kind, code, f"{type(error).__name__}: {told}")
    return Failure(code, retryable, body, _trimmed(detail, DETAIL_MAX), group, retry_after)


def item_error(error: BaseException) -> dict[str, object]:
    """The error of one item of a batch, as its owner may see it."""
    body: dict[str, object] = json.loads(understood(error, "").error)
    return body


def _fit(text: str, limit: int) -> str:
    # Redis takes UTF-8 only, and a message may carry half a character
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _trimmed(text: str, limit: int) -> str:
    """What the other side said stands at the beginning, where it happened at the end: the middle can go."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= limit:
        return text
    head, mark = limit // 4, "\n…\n"
    return text[:head] + mark + text[head + len(mark) - limit :]
