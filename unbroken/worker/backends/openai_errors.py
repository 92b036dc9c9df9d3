"""What an OpenAI-compatible server's error means for the task: by type, status and structured code, never
by digits or words in a message.

    Unreached   no connection
    Transient   408, 409, 425, 429, 5xx, time-outs, resets, an answer without its end
    Permanent   400, 401, 402, 403, 404, 413, 422, an empty account, a full context, a refusal
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import openai

from unbroken.tasks.errors import Permanent, TaskError, Transient, Unreached

RETRY_AFTER_MAX_S = 3_600.0

_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded"}
_LONG = {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}
_REFUSED = {"content_filter", "content_policy_violation", "safety_violation"}
_BUSY = {408, 409, 425, 429}
_SENTENCES = {
    400: ("bad_request", "The model's server refused the request."),
    401: ("unauthorized", "The model's server does not accept the API key."),
    402: ("quota", "The account at the model's server has no credit left."),
    403: ("forbidden", "The API key may not use this model."),
    404: ("not_found", "The model's server does not know this model or address."),
    413: ("context_length", "The text is longer than the model can read."),
    422: ("bad_request", "The model's server refused the request."),
    408: ("upstream_timeout", "The model's server gave up waiting."),
    409: ("upstream_conflict", "The model's server was busy with a conflicting request."),
    429: ("rate_limited", "The model's server asks us to slow down."),
}


def classify(error: BaseException) -> TaskError:
    """The error as Transient or Permanent."""
    if isinstance(error, TaskError):
        return error
    if _unconnected(error):
        return Unreached("upstream_unreachable", "The model's server cannot be reached.", detail=_why(error))
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return Transient("upstream_timeout", "The model's server did not answer in time.")
    if isinstance(error, openai.APIStatusError):
        body = error.body if isinstance(error.body, Mapping) else {}
        wait = retry_after(error.response.headers)
        return from_status(error.status_code, body, retry_after_s=wait)
    if isinstance(error, openai.APIConnectionError):
        return Transient("upstream_unreachable", "The model's server cannot be reached.", detail=repr(error))
    return Transient("upstream_reset", "The connection to the model's server broke.", detail=repr(error))


def _unconnected(error: BaseException) -> bool:
    """Was there no connection at all? By name: the SDK builds on httpx in some versions and on httpx2 in others."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ in ("ConnectError", "ConnectTimeout"):
            return True
        cause = cause.__cause__
    return False


def _why(error: BaseException) -> str:
    """What the network said, which the SDK's own error leaves out."""
    return repr(error.__cause__ or error)


def from_status(status: int, body: Mapping[str, object], *, retry_after_s: float | None = None) -> TaskError:
    """The meaning of a status (0: unknown) and the error object that came with it."""
    words = {str(body.get(name)) for name in ("code", "type") if body.get(name)}
    detail = str(body.get("message") or "")[:500] or None
    if words & _QUOTA:
        return Permanent("quota", _SENTENCES[402][1], detail=detail)
    if words & _LONG:
        return Permanent("context_length", _SENTENCES[413][1], detail=detail)
    if words & _REFUSED:
        return Permanent("content_filter", "The model's server declined this content.", detail=detail)
    if 400 <= status < 500 and status not in _BUSY:
        code, sentence = _SENTENCES.get(status, _SENTENCES[400])
        return Permanent(code, sentence, detail=detail)
    code, sentence = _SENTENCES.get(status, ("upstream_error", "The model's server failed."))
    return Transient(code, sentence, detail=detail, retry_after_s=retry_after_s)


def from_event(error: object) -> TaskError:
    """The meaning of an error that came inside the stream, where there is no status line."""
    body: Mapping[str, object] = error if isinstance(error, Mapping) else {"message": error}
    code = body.get("code")
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 0
    if body.get("type") == "invalid_request_error" and not status:
        status = 400
    return from_status(status, body)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, out of `retry-after-ms` or `Retry-After` (seconds or a date), at most an hour."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        raw = headers.get(name, "").strip()
        if not raw:
            continue
        try:
            seconds = float(raw) * unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(raw).timestamp() - time.time()
            except (ValueError, OverflowError):
                continue
        if math.isfinite(seconds):
            return min(max(seconds, 0.0), RETRY_AFTER_MAX_S)
    return None
