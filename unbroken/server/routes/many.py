"""Several tasks on one event stream."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from unbroken.server.auth import caller
from unbroken.server.context import services
from unbroken.server.many import ManyStream, Part, mark, parse_vector
from unbroken.server.problems import Problem, field_error, not_found
from unbroken.server.routes.stream import cursor_of
from unbroken.tasks.keys import is_task_id
from unbroken.tasks.words import closest


async def stream(request: Request) -> Response:
    """GET /api/stream?task=a&task=b"""
    shared, who = services(request), await caller(request)
    ids = list(dict.fromkeys(request.query_params.getlist("task")))
    limit = shared.settings.streams_tasks_max
    if not 1 <= len(ids) <= limit:
        meant = not ids and any(closest(name, ["task"]) for name in request.query_params)
        hint = " Each is called task." if meant else ""
        raise field_error("task", f"Name 1 to {limit} tasks: ?task=...&task=...{hint}", 400)
    try:
        cursors = parse_vector(cursor_of(request))
    except ValueError as error:
        raise Problem(400, f"The cursor cannot be read: {error}.") from None
    known = [task_id for task_id in ids if is_task_id(task_id)]
    found = {task.id: task for task in await shared.store.read_many(known, who.owner)}
    if len(found) != len(ids):
        raise not_found()
    parts = []
    for task_id in ids:
        task, cursor = found[task_id], cursors.get(mark(task_id))
        ended = task.terminal and cursor is not None and str(cursor) == task.last_event_id
        parts.append(Part(task.id, cursor, ended or task.text("shed") == "1"))
    if all(part.done for part in parts):
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    return ManyStream(shared, who, parts, cursors)
