"""The API's own description, OpenAPI 3.1, made from the models and the table below."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unbroken import __version__
from unbroken.server.auth import find_caller
from unbroken.server.context import services
from unbroken.server.openapi_words import (
    CURSOR,
    CURSOR_OF_MANY,
    ETAG,
    EVENTS,
    FILTERS,
    KEY,
    LIMIT,
    MADE,
    RANGE,
    REPLAYED,
    RETRY,
    SPAN,
    header,
    op,
    plain,
    query,
    result,
)
from unbroken.server.problems import Problem
from unbroken.server.schemas import STRING, components, ref
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.registry import BUILT_IN, WITHOUT_SCRIPT
from unbroken.tasks.registry import Spec as Kind

Spec = dict[str, Any]
TASK = "/api/tasks/{task_id}"

PATHS: dict[str, dict[str, Spec]] = {
    "/api/tasks": {
        "post": op(
            "create_task",
            "Create a task; 200 with a finished one where cache_s allows that.",
            {200: "Task", 201: "Task"},
            (400, 413, 415, 422, 429, 507),
            parameters=(KEY,),
            body="Submit",
            headers={200: MADE | REPLAYED, 201: MADE | REPLAYED},
        ),
        "get": op("list_tasks", "List tasks, newest first.", {200: "TaskPage"}, (400, 422), parameters=FILTERS),
    },
    TASK: {
        "get": op(
            "show_task",
            "One task.",
            {200: "Task", 304: None},
            (404,),
            parameters=(header("If-None-Match", "an ETag"),),
            headers={200: ETAG | RETRY, 304: ETAG | RETRY},
        ),
        "delete": op(
            "delete_task", "Remove an ended task with every trace.", {204: None}, (400, 404, 409), parameters=(KEY,)
        ),
    },
    f"{TASK}/stream": {
        "get": op(
            "stream_task",
            "The event stream of a task.",
            {200: EVENTS, 204: None},
            (400, 404, 410, 429),
            parameters=CURSOR,
        )
    },
    "/api/stream": {
        "get": op(
            "stream_tasks",
            "Several tasks on one stream; task_id is in the data.",
            {200: EVENTS, 204: None},
            (400, 404, 422, 429),
            parameters=({**query("task", {"type": "array", "items": STRING}), "required": True}, *CURSOR_OF_MANY),
        )
    },
    f"{TASK}/input": {
        "get": op("show_input", "What was asked for, as it is stored.", {200: "Input"}, (404, 410)),
    },
    "/api/titles": {
        "get": op(
            "list_titles",
            "Short titles, made from the inputs. Unknown and foreign tasks, and those without one, are left out.",
            {200: "Titles"},
            (400, 422),
            parameters=({**query("task", {"type": "array", "items": STRING}, "up to 200 ids"), "required": True},),
        )
    },
    f"{TASK}/result": {
        "get": op(
            "show_result",
            "The result: text, or JSON by Accept or for a batch.",
            {200: result(), 206: result(), 304: None},
            (404, 409, 410, 416),
            parameters=(header("Range", "one range of bytes"), header("Accept", "text/plain or application/json")),
            headers={200: ETAG, 206: ETAG | RANGE, 304: ETAG, 416: RANGE},
        )
    },
    f"{TASK}/rendered": {
        "get": op(
            "render_text",
            "A part of the text, from Markdown to safe HTML.",
            {200: plain("text/html")},
            (404, 410, 422, 429),
            parameters=SPAN,
        )
    },
    f"{TASK}/checkpoint": {"get": op("show_checkpoint", "What is saved; never the data.", {200: "Checkpoint"}, (404,))},
    f"{TASK}/history": {
        "get": op("show_history", "Its changes of state so far, as the stream told them.", {200: "History"}, (404,))
    },
    f"{TASK}/recover": {
        "post": op(
            "recover_task",
            "Continue a paused task from its checkpoint, once.",
            {200: "Recovery", 202: "Recovery"},
            (400, 404, 409, 422),
            parameters=(KEY,),
        )
    },
    f"{TASK}/pause": {
        "post": op(
            "pause_task",
            "Stop a task and keep its progress.",
            {200: "Task", 202: "Task"},
            (400, 404, 409, 422),
            parameters=(KEY,),
        )
    },
    f"{TASK}/cancel": {
        "post": op("cancel_task", "Stop a task for good.", {200: "Task"}, (400, 404, 409, 422), parameters=(KEY,))
    },
    "/api/dead-letters": {
        "get": op(
            "list_dead_letters",
            "Failed tasks by kind and error, or those of one group.",
            {200: {"application/json": {"schema": {"anyOf": [ref("DeadGroups"), ref("DeadGroup")]}}}},
            (422,),
            parameters=(query("group"), LIMIT),
        )
    },
    "/api/dead-letters/replay": {
        "post": op(
            "replay_dead_letters",
            "Continue failed tasks from their checkpoints with fresh budgets.",
            {200: "Replayed"},
            (400, 413, 415, 422, 507),
            parameters=(KEY,),
            body="Replay",
        )
    },
    "/api/stats": {"get": op("show_stats", "Queue depth, in flight, states, the last hour.", {200: "Stats"}, (422,))},
    "/api/session": {
        "get": op("show_session", "Who is signed in.", {200: "Session"}, open_to_all=True),
        "post": op(
            "sign_in",
            "Exchange a key for a cookie.",
            {200: "Session"},
            (400, 401, 403, 413, 415, 422),
            body="SignIn",
            open_to_all=True,
        ),
        "delete": op("sign_out", "Forget the cookie.", {204: None}, (403,), open_to_all=True),
    },
    "/api/openapi.json": {"get": op("show_description", "This description.", {200: "Description"}, open_to_all=True)},
    "/metrics": {"get": op("show_metrics", "Numbers for Prometheus.", {200: plain("text/plain")})},
    "/healthz": {"get": op("is_alive", "The process serves.", {200: "Alive"}, open_to_all=True)},
    "/readyz": {"get": op("is_ready", "Redis and all loops answer.", {200: "Ready", 503: "Ready"}, open_to_all=True)},
}


@cache
def document(kinds: tuple[Kind, ...] = tuple(WITHOUT_SCRIPT.values())) -> Spec:
    """The whole description, where these kinds are known."""
    task_id = {"name": "task_id", "in": "path", "required": True, "schema": STRING}
    paths: dict[str, Any] = {}
    for path, operations in PATHS.items():
        paths[path] = ({"parameters": [task_id]} if "{task_id}" in path else {}) | operations
    return {
        "openapi": "3.1.0",
        "info": {"title": "Unbroken", "version": __version__, "description": "Long AI generations that survive."},
        "paths": paths,
        "components": {
            "schemas": components(kinds),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "unbroken_session"},
            },
        },
        "security": [{"bearer": []}, {"cookie": []}, {}],
    }


async def show(request: Request) -> Response:
    """GET /api/openapi.json. Kinds that the operator registered are described to whoever may use them."""
    shared = services(request)
    try:
        known = await find_caller(request) is not None
    except (StoreUnavailable, Problem):
        known = False
    kinds = tuple(kind for kind in shared.kinds.values() if known or kind.name in BUILT_IN)
    return JSONResponse(document(kinds), headers={"Cache-Control": "no-cache", "Vary": "Authorization, Cookie"})
