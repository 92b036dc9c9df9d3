"""What was asked for: the stored input of a task, and titles for many."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unbroken.server.auth import caller
from unbroken.server.context import services
from unbroken.server.problems import Problem, field_error
from unbroken.server.query import query

TITLES_MAX = 200  # ids of one call: a page of the list
NO_STORE = {"Cache-Control": "no-store"}


async def show(request: Request) -> Response:
    """GET /api/tasks/{task_id}/input"""
    shared, who = services(request), await caller(request)
    task = await shared.store.get(request.path_params["task_id"], who.owner)
    given = None if task.text("shed") == "1" else await shared.store.input(task.id)
    if given is None:
        raise Problem(410, "The input is not kept any more.", state=task.state.value)
    return JSONResponse(given, headers=NO_STORE)


async def titles(request: Request) -> Response:
    """GET /api/titles?task=a&task=b"""
    shared, who = services(request), await caller(request)
    query(request, several=("task",))
    ids = request.query_params.getlist("task")
    if not 1 <= len(ids) <= TITLES_MAX:
        raise field_error("task", f"Name 1 to {TITLES_MAX} tasks: ?task=...&task=...", 400)
    return JSONResponse({"titles": await shared.store.titles(ids, who.owner)}, headers=NO_STORE)
