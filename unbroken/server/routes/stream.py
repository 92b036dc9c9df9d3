"""The event stream of one task."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from unbroken.server import sse
from unbroken.server.auth import caller
from unbroken.server.context import services
from unbroken.server.problems import Problem, field_error
from unbroken.server.stream import TaskStream

CURSORS = ("last_event_id", "lastEventId")  # in this order


def cursor_of(request: Request) -> str | None:
    """The cursor as given: the header wins over the query. Other parameters are nobody's business here (see query.py),
    but one that is surely meant as the cursor must not silently replay everything: Problem 422."""
    for name in request.query_params:
        if name not in CURSORS and re.sub(r"[^a-z]", "", name.lower()) in ("lasteventid", "cursor"):
            raise field_error(name[:100], "There is no such parameter. Did you mean last_event_id?")
    for given in (
        request.headers.get("last-event-id"),
        *(request.query_params.get(name) for name in CURSORS),
    ):
        if given is not None:
            return given.strip(" ")
    return None


async def stream(request: Request) -> Response:
    """GET /api/tasks/{task_id}/stream"""
    shared, who = services(request), await caller(request)
    task = await shared.records.get(request.path_params["task_id"], who.owner)
    try:
        cursor = sse.parse_cursor(cursor_of(request))
    except ValueError as error:
        raise Problem(400, f"The cursor cannot be read: {error}.") from None
    if task.terminal and cursor is not None and str(cursor) == task.last_event_id:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    if task.text("shed") == "1":
        raise Problem(410, "The events of this task are not kept any more.", state=task.state.value)
    return TaskStream(shared, who, task.id, cursor)
