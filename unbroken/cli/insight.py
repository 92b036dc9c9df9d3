"""`unbroken show --detail`: a task as its operator may see it, read from the store on the server's own machine.

Owners get one plain sentence about an error; what is here may hold anything that a model server or a kind's own code
has said, and never goes through the API."""

from __future__ import annotations

import asyncio
from typing import Any

from unbroken.cli import show
from unbroken.cli.borrow import store_of
from unbroken.cli.sink import harmless
from unbroken.tasks.errors import NotFound, UnbrokenError
from unbroken.tasks.record import Task
from unbroken.tasks.settings import Settings

FIELDS = ("owner", "worker", "generation", "losses", "interruptions", "past_errors", "group")


def show_task(settings: Settings, task_id: str, *, as_json: bool) -> None:
    """Print it; in words, the stack comes last. Raises StoreUnavailable, UnbrokenError for an id that is not there."""
    task = asyncio.run(_read(settings, task_id))
    seen = operators_view(task)
    if as_json:
        show.as_json(seen)
        return
    detail = seen.pop("detail")
    seen.pop("links")
    show.facts(seen)
    if detail:
        print(f"\n{harmless(detail)}")


async def _read(settings: Settings, task_id: str) -> Task:
    async with store_of(settings) as store:
        try:
            return await store.get(task_id, None)
        except NotFound:
            raise UnbrokenError("there is no such task") from None


def operators_view(task: Task) -> dict[str, Any]:
    """The public object, and what is stored beside it. `last_error` outlives a success, as `detail` does."""
    more: dict[str, Any] = {name: task.text(name) or None for name in FIELDS}
    return {**task.view(), **more, "last_error": task.text("last_error") or None, "detail": task.text("detail")}
