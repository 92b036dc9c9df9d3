"""Create, list, show and delete tasks."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unbroken.server.auth import Caller, caller
from unbroken.server.body import idempotency_key, read_object
from unbroken.server.callbacks import Forbidden, check_url
from unbroken.server.context import Services, services
from unbroken.server.problems import Problem, field_error, invalid, retry_after
from unbroken.server.query import one_of, query, whole
from unbroken.tasks.errors import NotFound
from unbroken.tasks.inputs import Submit, due_ms
from unbroken.tasks.keys import is_task_id
from unbroken.tasks.record import Task
from unbroken.tasks.state import State
from unbroken.tasks.submit import NewTask
from unbroken.tasks.title import title_of

LIST_MAX = 200
PRIORITIES = ("high", "normal", "low")
PRIVATE = {"Cache-Control": "private, no-cache"}


async def create(request: Request) -> Response:
    """POST /api/tasks"""
    shared, who = services(request), await caller(request)
    key = idempotency_key(request)
    body = await read_object(request, shared.settings.body_max)
    new = prepare(shared, who.owner, body)
    await _limit(shared, who, key)
    try:
        task, replayed = await shared.store.create(new, actor=who.actor, idempotency_key=key)
    except (ValueError, OverflowError, TypeError) as error:  # what msgpack cannot carry
        raise field_error("input", f"This cannot be stored ({error}).") from None
    view = task.view()
    headers = {"Location": view["links"]["self"], "Cache-Control": "no-store"}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    # a result that exists already was not created: 200
    return JSONResponse(view, 200 if view["cached"] else 201, headers)


async def _limit(shared: Services, who: Caller, key: str | None) -> None:
    """Only new tasks count: no refused body, and no repeat of a submit whose answer was lost."""
    limit = shared.settings.submits_per_minute
    if limit and key is not None and await shared.store.answered(who.owner, key):
        return
    if limit and (wait := await shared.store.admit(f"submit:{who.owner}", per_minute=limit)):
        headers = retry_after(wait)
        raise Problem(429, f"More than {limit} tasks a minute; again in {headers['Retry-After']} s.", headers=headers)


def prepare(shared: Services, owner: str, body: dict[str, Any]) -> NewTask:
    """Validate a submit completely. Raises Problem 422."""
    try:
        submit = Submit.model_validate(body)
    except ValidationError as error:
        raise invalid(error, Submit) from None
    kind = shared.kinds.get(submit.kind)
    if kind is None:
        raise field_error("kind", f"There is no such kind. Known are {', '.join(sorted(shared.kinds))}.")
    try:
        data = kind.input.model_validate(submit.input)
    except ValidationError as error:
        raise invalid(error, kind.input, "input") from None
    if submit.callback is not None:
        try:
            check_url(submit.callback, shared.settings)
        except Forbidden as error:
            raise field_error("callback", str(error)) from None
    kept = data.model_dump(mode="json", exclude_unset=True)
    head = {"high": 1, "normal": 0, "low": -1}[submit.priority] * shared.settings.head_start_s
    return NewTask(
        owner=owner,
        kind=submit.kind,
        input=kept,
        unit=kind.unit,
        total=kind.total(data),
        priority=submit.priority,
        sender=submit.sender,
        topic=submit.topic,
        recovery=submit.recovery,
        max_attempts=submit.max_attempts,
        max_crashes=submit.max_crashes,
        timeout_ms=max(1, int(submit.timeout_s * 1000)),
        due_ms=due_ms(submit.run_at),
        head_ms=int(head * 1000),
        cache_ms=int(submit.cache_s * 1000),
        callback=submit.callback or "",
        title=title_of(kept),
    )


async def index(request: Request) -> Response:
    """GET /api/tasks"""
    shared, who = services(request), await caller(request)
    given = query(request, "state", "kind", "sender", "topic", "priority", "limit", "cursor")
    state = one_of(given.get("state"), "state", list(State))
    try:
        page = await shared.store.list_tasks(
            who.owner,
            state=state,
            limit=whole(given.get("limit"), "limit", default=50, low=1, high=LIST_MAX),
            cursor=given.get("cursor") or None,
            kind=given.get("kind"),
            sender=given.get("sender"),
            topic=given.get("topic"),
            priority=one_of(given.get("priority"), "priority", PRIORITIES),
        )
    except ValueError:
        raise field_error("cursor", "This is not a cursor of this list.", 400) from None
    # the state in the record is newer than the list it was found in
    items = shared.store.views([task for task in page.tasks if state is None or task.state == state])
    return JSONResponse({"items": items, "next_cursor": page.cursor}, headers=PRIVATE)


async def show(request: Request) -> Response:
    """GET /api/tasks/{task_id}"""
    who = await caller(request)
    task = await services(request).records.get(request.path_params["task_id"], who.owner)
    answer = JSONResponse(task.view(), headers=PRIVATE)
    etag = f'"{hashlib.sha256(bytes(answer.body)).hexdigest()[:32]}"'
    headers = {"ETag": etag, **PRIVATE}
    if not task.terminal:
        headers |= retry_after(poll_s(task))
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    answer.headers.update(headers)
    return answer


def poll_s(task: Task) -> int:
    """Seconds until polling makes sense again: 1 in the first ten seconds of a task, then 5."""
    return 1 if task.now - task.num("created") < 10_000 else 5


def matches(given: str | None, etag: str) -> bool:
    """If-None-Match (RFC 9110, weak comparison)."""
    if given is None:
        return False
    return given.strip() == "*" or etag in [part.strip().removeprefix("W/") for part in given.split(",")]


async def delete(request: Request) -> Response:
    """DELETE /api/tasks/{task_id}"""
    shared, who = services(request), await caller(request)
    task_id, key = request.path_params["task_id"], idempotency_key(request)
    try:
        where = await shared.store.purge(task_id, who.owner, actor=who.actor, idempotency_key=key)
    except NotFound:  # the record may be gone already, its archived result goes too
        if not await _forget_archived(shared, who.owner, task_id):
            raise
        return Response(status_code=204)
    await shared.forget_objects(where)
    await _forget_archived(shared, who.owner, task_id)
    return Response(status_code=204)


async def _forget_archived(shared: Services, owner: str, task_id: str) -> bool:
    if not shared.settings.archive or not is_task_id(task_id):
        return False
    return await shared.objects.forget_archived(owner, task_id)
