"""Errors towards clients: always `application/problem+json` (RFC 9457), never a traceback.

What each error of the tree in tasks/errors.py means in HTTP is decided here and nowhere else."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from unbroken.tasks.errors import Conflict, Corrupt, NotFound, Refused, StoreUnavailable, UnbrokenError
from unbroken.tasks.words import wrong_fields

log = logging.getLogger("unbroken.server")
MAX_FIELDS = 50  # wrong fields that one answer names
STORE_RETRY_S = 2


class Problem(UnbrokenError):
    """An answer that is an error. errors: [{"field", "message"}]; more: further members of the document."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.more = more

    def response(self) -> ProblemResponse:
        """As HTTP."""
        return ProblemResponse(self)


class ProblemResponse(JSONResponse):
    """A problem document."""

    media_type = "application/problem+json"

    def __init__(self, problem: Problem) -> None:
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(problem.status).phrase,
            "status": problem.status,
            "detail": problem.detail,
            **problem.more,
        }
        if problem.errors:
            body["errors"] = problem.errors
        headers = {"Cache-Control": "no-store", **problem.headers}
        super().__init__(body, status_code=problem.status, headers=headers)


def retry_after(seconds: float) -> dict[str, str]:
    """The header, in whole seconds, at least one."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def not_found() -> Problem:
    """The same words for what does not exist and for what belongs to somebody else (G16)."""
    return Problem(404, "There is no such task.")


def invalid(error: ValidationError, model: type[BaseModel], prefix: str = "") -> Problem:
    """422 with one entry for each wrong field of a body that should have been a `model`. What is wrong with the body as
    a whole has `prefix`, or "body", for its field. The given value is not repeated: it may be long or secret."""
    fields = []
    for where, says in wrong_fields(error, model, MAX_FIELDS):
        path = ".".join([*([prefix] if prefix else []), *where]) or "body"
        fields.append({"field": path, "message": says})
    return _fields_problem(422, fields)


def field_error(field: str, message: str, status: int = 422) -> Problem:
    """One wrong field."""
    return _fields_problem(status, [{"field": field, "message": message}])


def _fields_problem(status: int, fields: list[dict[str, str]]) -> Problem:
    """The sentence names the first field, for whoever shows only that."""
    more = f" ({len(fields) - 1} more in errors)" if len(fields) > 1 else ""
    return Problem(status, f"{fields[0]['field']}: {fields[0]['message']}{more}", errors=fields)


def from_exception(error: Exception) -> Problem:
    """The answer to any error that a handler let through."""
    match error:
        case Problem():
            return error
        case NotFound():
            return not_found()
        case Refused():
            return Problem(409, error.why, state=error.state)
        case Conflict():
            return Problem(422, "This Idempotency-Key was used before with another body.")
        case StoreUnavailable(full=True):
            return Problem(507, "The database is full; nothing new can be stored now.", headers=retry_after(30))
        case StoreUnavailable():
            detail = "The database does not answer at the moment. Nothing is lost; try again."
            return Problem(503, detail, headers=retry_after(STORE_RETRY_S))
        case HTTPException():
            return _from_starlette(error)
    return _unexpected(error)


def _from_starlette(error: HTTPException) -> Problem:
    details = {
        404: "There is nothing at this address.",
        405: "This address does not know that method.",
    }
    detail = details.get(error.status_code) or str(error.detail)
    return Problem(error.status_code, detail, headers=error.headers)


def _unexpected(error: Exception) -> Problem:
    incident = secrets.token_hex(6)
    what = "stored data is damaged" if isinstance(error, Corrupt) else "unexpected error"
    log.error("incident %s: %s", incident, what, exc_info=error)
    detail = "Something went wrong on our side. The log has more under this incident id."
    return Problem(500, detail, incident=incident)
