"""The result, and the text as the page shows it."""

from __future__ import annotations

import json
import re

from starlette.requests import Request
from starlette.responses import Response

from unbroken.server.auth import caller
from unbroken.server.context import Services, services
from unbroken.server.problems import Problem, field_error
from unbroken.server.query import query, whole
from unbroken.server.routes.tasks import matches
from unbroken.tasks.errors import NotFound
from unbroken.tasks.events import sha256
from unbroken.tasks.keys import is_task_id
from unbroken.tasks.record import Task
from unbroken.tasks.result import encode_batch
from unbroken.tasks.state import State

PLAIN, JSON = "text/plain; charset=utf-8", "application/json"
RENDER_MAX = 200_000  # characters rendered in one answer
_RANGE = re.compile(r"^bytes=(\d{0,18})-(\d{0,18})\Z", re.ASCII)


async def result(request: Request) -> Response:
    """GET /api/tasks/{task_id}/result"""
    shared, who = services(request), await caller(request)
    task_id = request.path_params["task_id"]
    try:
        task = await shared.store.get(task_id, who.owner)
    except NotFound:  # the record may be gone already, the archive stays
        return await _archived(request, task_id) or _raise(NotFound(task_id))
    if task.state is not State.COMPLETED:
        detail = f"There is no result: the task is {task.state}.{_text_so_far(task)}"
        raise Problem(409, detail, state=task.state.value)
    kept = await _kept(shared, task)
    if kept is None:
        return await _archived(request, task_id) or _raise(await _gone(shared, task))
    body, media = _as_asked(task, *kept, request.headers.get("accept", ""))
    return _ranged(request, body, media, f'"{task.text("sha256") or task.last_event_id}-{media[:6]}"')


def _text_so_far(task: Task) -> str:
    """Where what was written before the end can still be read."""
    if not (task.terminal and task.num("length")) or task.text("shed") == "1":
        return ""
    return " Its text so far is kept: in its event stream, on its page, and by `unbroken watch`."


async def _archived(request: Request, task_id: str) -> Response | None:
    """A result that outlived its time in Redis."""
    shared, who = services(request), await caller(request)
    if not shared.settings.archive or not is_task_id(task_id):
        return None
    found = await shared.objects.archived(who.owner, task_id)
    if found is None:
        return None
    media, body = found
    return _ranged(request, body, JSON if media == "json" else PLAIN, f'"{sha256(body)}"')


def _raise(error: Exception) -> Response:
    raise error


def _as_asked(task: Task, raw: bytes, media: str, accept: str) -> tuple[bytes, str]:
    if media == JSON or not wants_json(accept):
        return raw, media
    text = raw.decode("utf-8", "replace")
    answer = {"task_id": task.id, "text": text, "length": len(text), "sha256": task.text("sha256")}
    return json.dumps(answer, ensure_ascii=False).encode(), JSON


async def _kept(shared: Services, task: Task) -> tuple[bytes, str] | None:
    """The result's own bytes. None when they are gone, also when they went after the record was read."""
    if task.text("shed") == "1":
        return None
    if task.text("unit") == "items":
        items = await shared.store.items(task.id)
        return (encode_batch(items), JSON) if items or not task.num("done") else None
    text = await _text(shared, task)
    return None if text is None else (text, PLAIN)


async def _text(shared: Services, task: Task) -> bytes | None:
    """The text so far; None when there was one and it is gone."""
    raw = await shared.store.text(task.id)
    return b"" if raw is None and not task.num("length") else raw


async def _gone(shared: Services, task: Task) -> Problem:
    """What the record spoke of is not there: its time was over, or (NotFound) the task was deleted meanwhile."""
    state = (await shared.store.get(task.id, task.owner)).state
    return Problem(410, "The result is not kept any more.", state=state.value)


def wants_json(accept: str) -> bool:
    """Does this Accept header prefer JSON to plain text? (RFC 9110; a tie goes to plain text.)"""
    weight = {"application/json": -1.0, "text/plain": -1.0}
    general = {"application/json": ("application/*", "*/*"), "text/plain": ("text/*", "*/*")}
    given: dict[str, float] = {}
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        q = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        given[name] = float(q) if re.fullmatch(r"[01](\.\d{0,3})?", q) else 0.0
    for name in weight:
        weight[name] = next((given[n] for n in (name, *general[name]) if n in given), 0.0)
    return weight["application/json"] > weight["text/plain"]


def _ranged(request: Request, body: bytes, media: str, etag: str) -> Response:
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Vary": "Accept",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": "inline",
    }
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    given = request.headers.get("range")
    condition = request.headers.get("if-range")
    match = _RANGE.match(given.strip()) if given and (condition is None or condition == etag) else None
    if match is None or match[0] == "bytes=-":  # none, several, or another unit: the whole is a right answer too
        return Response(body, 200, headers, media)
    start, stop = _bounds(match[1], match[2], len(body))
    if start >= stop:
        more = {"Content-Range": f"bytes */{len(body)}"}
        raise Problem(416, f"The result has {len(body)} bytes.", headers=more)
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
    return Response(body[start:stop], 206, headers, media)


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    if first == "":
        return max(0, size - int(last)), size
    stop = size if last == "" else min(size, int(last) + 1)
    return int(first), stop


async def rendered(request: Request) -> Response:
    """GET /api/tasks/{task_id}/rendered?from=&to= (code points): a fragment of HTML made from Markdown."""
    shared, who = services(request), await caller(request)
    task = await shared.store.get(request.path_params["task_id"], who.owner)
    given = query(request, "from", "to")
    start = whole(given.get("from"), "from", default=0, low=0, high=10**9)
    stop = whole(given.get("to"), "to", default=start + RENDER_MAX, low=0, high=10**9)
    if stop < start or stop - start > RENDER_MAX:
        raise field_error("to", f"Must be behind `from`, by {RENDER_MAX} at most.")

    async def text() -> str:
        raw = await _text(shared, task)
        if raw is None:
            raise await _gone(shared, task)
        return raw.decode("utf-8", "replace")[start:stop]

    html = await shared.renderer.html(who.owner, text)
    headers = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(html, 200, headers, "text/html; charset=utf-8")
