"""Reading a JSON body within limits. Everything a client can send wrong ends in a Problem."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from starlette.requests import Request

from unbroken.server.problems import Problem, field_error

DRAIN_MAX = 32 * 1024 * 1024  # bytes beyond the limit that are read and dropped before the refusal

_VISIBLE = re.compile(r"^[\x21-\x7e]{1,255}\Z", re.ASCII)


async def read_object(request: Request, limit: int) -> dict[str, Any]:
    """The body as a JSON object of at most `limit` bytes. Raises Problem 400, 413 or 415."""
    value = await read_json(request, limit)
    if not isinstance(value, dict):
        raise Problem(400, "The body must be a JSON object.")
    return value


async def read_json(request: Request, limit: int) -> Any:
    """The body as JSON. Raises Problem."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "Send JSON, with Content-Type: application/json.")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, "Compressed bodies are not accepted.")
    return parse(await read_bytes(request, limit))


async def read_bytes(request: Request, limit: int) -> bytes:
    """The body, counted while it is read. Raises Problem 413.

    What is too large is still taken from the wire, and dropped, up to a point: a client that is in the middle of
    sending when the connection closes sees a reset instead of the answer."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit + DRAIN_MAX:
        raise _too_large(limit, close=True)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit + DRAIN_MAX:
            raise _too_large(limit, close=True)
        if size > limit:
            parts.clear()
        else:
            parts.append(part)
    if size > limit:
        raise _too_large(limit, close=False)
    return b"".join(parts)


def _too_large(limit: int, *, close: bool) -> Problem:
    headers = {"Connection": "close"} if close else None
    return Problem(413, f"The body is larger than the limit of {limit} bytes.", headers=headers)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def parse(raw: bytes) -> Any:
    """Strict JSON: UTF-8, no NaN or Infinity, no endless nesting. Raises Problem 400."""
    if not raw.strip():
        raise Problem(400, "The body is empty. Send a JSON object.")
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Problem(400, "The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise Problem(400, f"The body is not JSON (line {error.lineno}, column {error.colno}).") from None
    except RecursionError:
        raise Problem(400, "The body is nested too deeply.") from None
    except ValueError:  # NaN, Infinity, or a number of thousands of digits
        raise Problem(400, "The body is not JSON: it holds a number that JSON does not know.") from None


async def no_fields(request: Request, limit: int = 65_536) -> None:
    """A call that takes no body: an empty one, or an empty object. Raises Problem 400, 413, 422."""
    raw = await read_bytes(request, limit)
    value = parse(raw) if raw.strip() else {}
    if not isinstance(value, dict):
        raise Problem(400, "The body must be a JSON object, or empty.")
    if value:
        raise field_error(next(iter(value)), "There is no such field: this call takes none.")


def idempotency_key(request: Request) -> str | None:
    """The header, checked. Raises Problem 400."""
    given = request.headers.get("idempotency-key")
    if given is not None and not _VISIBLE.match(given):
        raise Problem(400, "An Idempotency-Key is 1 to 255 visible ASCII characters.")
    return given
