"""Dead letters: what failed, and another try for it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unbroken.server.auth import caller
from unbroken.server.body import idempotency_key, read_object
from unbroken.server.context import services
from unbroken.server.problems import invalid
from unbroken.server.query import query, whole
from unbroken.server.routes.tasks import LIST_MAX
from unbroken.tasks.dead import replay_many
from unbroken.tasks.inputs import Strict

NO_STORE = {"Cache-Control": "no-store"}
REPLAY_MAX = 10_000  # tasks of one call


class Replay(Strict):
    """The body of a replay: exactly one of the three."""

    task_ids: Annotated[list[str], Field(min_length=1, max_length=REPLAY_MAX)] | None = None
    group: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    all: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Replay:
        if sum(value is not None for value in (self.task_ids, self.group, self.all)) != 1:
            raise ValueError("Give exactly one of task_ids, group and all.")
        return self


async def index(request: Request) -> Response:
    """GET /api/dead-letters"""
    shared, who = services(request), await caller(request)
    given = query(request, "group", "limit")
    group = given.get("group")
    limit = whole(given.get("limit"), "limit", default=LIST_MAX, low=1, high=LIST_MAX)
    if group is None:
        return JSONResponse({"groups": await shared.store.dead_groups(who.owner, limit=limit)}, headers=NO_STORE)
    ids = await shared.store.dead_ids(who.owner, group, limit=limit) if group else []
    tasks = await shared.store.read_many(ids, who.owner) if ids else []
    return JSONResponse({"group": group, "items": shared.store.views(tasks)}, headers=NO_STORE)


async def replay(request: Request) -> Response:
    """POST /api/dead-letters/replay"""
    shared, who = services(request), await caller(request)
    idempotency_key(request)
    try:
        asked = Replay.model_validate(await read_object(request, shared.settings.body_max))
    except ValidationError as error:
        raise invalid(error, Replay) from None
    ids = asked.task_ids
    if ids is None:
        ids = await shared.store.dead_ids(who.owner, asked.group, limit=REPLAY_MAX)
    done, refused = await replay_many(shared.store, ids, who.owner, actor=who.actor)
    return JSONResponse({"replayed": len(done), "task_ids": done, "refused": refused}, headers=NO_STORE)
