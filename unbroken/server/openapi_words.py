"""The words that the API's description is made of: parameters, headers, and one operation."""

from __future__ import annotations

from typing import Any

from unbroken.server.schemas import INTEGER, STRING, ref
from unbroken.tasks.events import NAMES
from unbroken.tasks.state import State

Spec = dict[str, Any]
PROBLEM = {"application/problem+json": {"schema": ref("Problem")}}
# OpenAPI 3.1 has no words for the events inside a stream, so they stand in an extension: the name of each event and the
# shape of its data.
EVENTS = {
    "text/event-stream": {
        "schema": {"type": "string"},
        "x-events": {name: ref(f"{name.capitalize()}Event") for name in sorted(NAMES)},
    }
}

MEANING = {
    200: "As asked.",
    201: "Created.",
    202: "Accepted; it happens soon.",
    204: "Nothing to say.",
    206: "A part.",
    304: "Not modified.",
    400: "Malformed.",
    401: "A valid key is needed.",
    403: "Comes from another site.",
    404: "No such task, or not yours.",
    409: "Not in this state.",
    410: "Not kept any more.",
    413: "Too large.",
    415: "Not JSON, or compressed.",
    416: "Beyond the end.",
    422: "Some fields are not right.",
    429: "Too much; see Retry-After.",
    503: "Not now; see Retry-After.",
    507: "The database is full; see Retry-After.",
}


def query(name: str, schema: Spec = STRING, text: str = "") -> Spec:
    """A parameter in the query."""
    return {"name": name, "in": "query", "schema": schema, "description": text or name}


def header(name: str, text: str, schema: Spec = STRING) -> Spec:
    """A parameter in a header."""
    return {"name": name, "in": "header", "schema": schema, "description": text}


def told(name: str, text: str, schema: Spec = STRING) -> Spec:
    """A header of an answer."""
    return {name: {"description": text, "schema": schema}}


RETRY = told("Retry-After", "seconds until it makes sense to ask again", {"type": "integer", "minimum": 1})
ETAG = told("ETag", "of this answer; send it as If-None-Match")
MADE = told("Location", "the address of the task")
REPLAYED = told(
    "Idempotent-Replayed", "this is the answer of the first call with this Idempotency-Key", {"const": "true"}
)
RANGE = told("Content-Range", "which bytes of how many")
SAYS_WHEN = (429, 503, 507)
KEY = header("Idempotency-Key", "1-255 visible ASCII characters", {"type": "string", "pattern": "^[!-~]{1,255}$"})
ID = r"(0|[1-9]\d{0,15})-(0|[1-9]\d{0,15})"


def cursors(pattern: str) -> tuple[Spec, ...]:
    """The three ways to say from where on a stream is wanted."""
    schema: Spec = {"type": "string", "pattern": f"^(-1|{pattern})?$"}
    return (
        header("Last-Event-ID", "the id of the last event that arrived; wins over the query", schema),
        query("last_event_id", schema, "the same; -1 = from the start"),
        query("lastEventId", schema, "the same"),
    )


CURSOR = cursors(ID)
CURSOR_OF_MANY = cursors(f"[0-9a-f]{{8}}:{ID}(,[0-9a-f]{{8}}:{ID})*")
LIMIT = query("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50})
STATE = query("state", {"type": "string", "enum": [state.value for state in State]})
PRIORITY = query("priority", {"type": "string", "enum": ["high", "normal", "low"]})
FILTERS = (STATE, query("kind"), query("sender"), query("topic"), PRIORITY, LIMIT, query("cursor"))
SPAN = (query("from", INTEGER, "first code point"), query("to", INTEGER, "behind the last code point"))


def op(
    name: str,
    summary: str,
    good: dict[int, str | Spec | None],
    bad: tuple[int, ...] = (),
    *,
    parameters: tuple[Spec, ...] = (),
    body: str | None = None,
    open_to_all: bool = False,
    headers: dict[int, Spec] | None = None,
) -> Spec:
    """One operation. good: status to schema name, content, or None for no body. headers: by status."""
    answers: Spec = {}
    for status, what in good.items():
        content = {"application/json": {"schema": ref(what)}} if isinstance(what, str) else what
        answers[str(status)] = {"description": MEANING[status]} | ({"content": content} if content else {})
    usual = (503,) if open_to_all else (401, 403, 503)
    for status in sorted({*bad, *usual} - set(good)):
        answers[str(status)] = {"description": MEANING[status], "content": PROBLEM}
    for status, some in (dict.fromkeys(SAYS_WHEN, RETRY) | (headers or {})).items():
        if str(status) in answers:
            answers[str(status)]["headers"] = some
    spec: Spec = {"operationId": name, "summary": summary, "responses": answers}
    if parameters:
        spec["parameters"] = list(parameters)
    if body:
        spec["requestBody"] = {"required": True, "content": {"application/json": {"schema": ref(body)}}}
    if open_to_all:
        spec["security"] = []
    return spec


def plain(media: str) -> Spec:
    """Content that is not JSON."""
    return {media: {"schema": {"type": "string"}}}


def result() -> Spec:
    """Text, or JSON by Accept or for a batch."""
    both = {"application/json": {"schema": {"anyOf": [ref("TextResult"), ref("BatchResult")]}}}
    return {**plain("text/plain"), **both}
