"""What moves a task: recover, pause, cancel; what is saved of it, and what has moved it so far."""

from __future__ import annotations

import asyncio
import json
import secrets
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unbroken.server.auth import caller
from unbroken.server.body import idempotency_key, no_fields
from unbroken.server.context import services
from unbroken.server.problems import Problem
from unbroken.tasks.state import State

PAUSE_WAIT_S = 2.0  # a running task needs a moment to save its checkpoint
PAUSE_LOOK_S = 0.05
NO_STORE = {"Cache-Control": "no-store"}


async def recover(request: Request) -> Response:
    """POST /api/tasks/{task_id}/recover"""
    shared, who = services(request), await caller(request)
    idempotency_key(request)  # every call is idempotent; a malformed key is still told
    await no_fields(request)
    task_id = request.path_params["task_id"]
    given, started = await shared.store.recover(
        task_id, who.owner, actor=who.actor, recovery_id=f"r-{secrets.token_hex(10)}"
    )
    task = await shared.store.get(task_id, who.owner)
    answer = {
        "recovery_id": given,
        "from_checkpoint": task.checkpoint.view() if task.checkpoint else None,
        "task_id": task.id,
        "state": task.state.value,
    }
    return JSONResponse(answer, 202 if started else 200, NO_STORE)


async def pause(request: Request) -> Response:
    """POST /api/tasks/{task_id}/pause"""
    shared, who = services(request), await caller(request)
    idempotency_key(request)
    await no_fields(request)
    task_id = request.path_params["task_id"]
    state = await shared.store.pause(task_id, who.owner, actor=who.actor)
    until = time.monotonic() + PAUSE_WAIT_S
    while state is State.PROCESSING and time.monotonic() < until:
        await asyncio.sleep(PAUSE_LOOK_S)
        state = (await shared.store.get(task_id, who.owner)).state
    task = await shared.store.get(task_id, who.owner)
    return JSONResponse(task.view(), 202 if task.state is State.PROCESSING else 200, NO_STORE)


async def cancel(request: Request) -> Response:
    """POST /api/tasks/{task_id}/cancel"""
    shared, who = services(request), await caller(request)
    idempotency_key(request)
    await no_fields(request)
    task_id = request.path_params["task_id"]
    await shared.store.cancel(task_id, who.owner, actor=who.actor)
    return JSONResponse((await shared.store.get(task_id, who.owner)).view(), 200, NO_STORE)


async def checkpoint(request: Request) -> Response:
    """GET /api/tasks/{task_id}/checkpoint"""
    shared, who = services(request), await caller(request)
    task = await shared.store.get(request.path_params["task_id"], who.owner)
    if task.checkpoint is None:
        raise Problem(404, "Nothing is saved of this task (yet, or any more).", state=task.state.value)
    return JSONResponse(task.checkpoint.view(), headers=NO_STORE)


async def history(request: Request) -> Response:
    """GET /api/tasks/{task_id}/history"""
    shared, who = services(request), await caller(request)
    task = await shared.store.get(request.path_params["task_id"], who.owner)
    told = await shared.store.history(task.id)
    items = [{"id": event_id, "event": name, "data": json.loads(data)} for event_id, name, data in told]
    return JSONResponse({"items": items}, 200, NO_STORE)
