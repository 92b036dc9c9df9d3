"""Commands about tasks that exist: watch, list, show, result, recover, pause, cancel, delete."""

from __future__ import annotations

import hashlib
import sys
from typing import Annotated, Any

import typer

from unbroken.cli import show
from unbroken.cli.client import Client, quoted
from unbroken.cli.serving import DataDir, RedisUrl
from unbroken.cli.sink import harmless
from unbroken.cli.views import view_for
from unbroken.cli.watch import EXIT, Untrue, Watcher
from unbroken.tasks.settings import load

Url = Annotated[str | None, typer.Option(help="Address of the server (UNBROKEN_URL).")]
Json = Annotated[bool, typer.Option("--json", help="JSON, for scripts.")]
TaskId = Annotated[str, typer.Argument(help="The task's id.", metavar="ID")]
Wait = Annotated[bool, typer.Option("--wait", help="Stay through pauses, until the task really ends.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("watch")(watch)
    app.command("list")(list_tasks)
    app.command("show")(show_task)
    app.command("result")(result)
    app.command("recover")(recover)
    app.command("pause")(pause)
    app.command("cancel")(cancel)
    app.command("delete")(delete)


def watch(task_id: TaskId, wait: Wait = False, as_json: Json = False, url: Url = None) -> int:
    """Show a task's text as it comes, from its beginning. Ends with it: 0 completed, 1 failed, 3 paused,
    4 cancelled."""
    with Client(url) as client:
        kind = str(client.task(task_id)["kind"])
        return follow(client, task_id, kind, wait=wait, as_json=as_json)


def follow(client: Client, task_id: str, kind: str, *, wait: bool, as_json: bool) -> int:
    """Watch until the end, say how it ended, and return the exit code."""
    with view_for(kind=kind, as_json=as_json) as view:
        watcher = Watcher(client, task_id, view, wait=wait)
        state = watcher.run()
    fold = watcher.fold
    if state == "completed" and kind == "batch" and not as_json and not sys.stdout.isatty():
        _write(_fetch(client, task_id, "application/json", str(fold.end.get("sha256") or "")))
    if state == "failed":
        error = fold.error or client.task(task_id).get("error") or {}
        show.tell(f"failed: {error.get('code', 'error')}: {error.get('message', '')}")
    elif state == "paused":
        show.tell(f"paused ({fold.reason}); continue it with: unbroken recover {task_id}")
    elif state == "cancelled":
        show.tell("cancelled")
    elif bad := sum(not item.get("ok") for item in fold.items.values()):
        show.tell(f"completed, but {bad} of {len(fold.items)} items failed ({task_id})")
    elif sys.stdout.isatty() and not as_json:
        cuts = f", {watcher.reconnects} reconnects" if watcher.reconnects else ""
        show.tell(f"completed: {fold.length} characters{cuts} ({task_id})")
    return EXIT[state]


def list_tasks(
    state: Annotated[str | None, typer.Option(help="Only in this state.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind.")] = None,
    sender: Annotated[str | None, typer.Option(help="Only from this sender.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only about this topic.")] = None,
    priority: Annotated[str | None, typer.Option(help="Only of this priority.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """List tasks, newest first."""
    query = {"state": state, "kind": kind, "sender": sender, "topic": topic, "priority": priority}
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    with Client(url) as client:
        while len(found) < limit:
            page = client.get("/api/tasks", **query, limit=min(200, limit - len(found)), cursor=cursor)
            found += page["items"]
            cursor = page.get("next_cursor")
            if not cursor:
                break
        titles = {} if as_json else client.titles([task["task_id"] for task in found])
    if as_json:
        show.as_json({"items": found, "next_cursor": cursor})
        return
    columns = ("id", "state", "kind", "done", "length", "age", "sender", "topic", "title", "note")
    rows = [
        (
            t["task_id"],
            t["state"],
            t["kind"],
            f"{t['progress']:.0%}",
            t["length"],
            show.age(t["created_at"]),
            t["sender"],
            t["topic"],
            titles.get(t["task_id"]),
            t.get("warning") or (t.get("error") or {}).get("message"),
        )
        for t in found
    ]
    show.table(columns, rows, gives=("length", "sender", "topic", "note", "title"))


def show_task(
    task_id: TaskId,
    detail: Annotated[
        bool, typer.Option("--detail", help="What only operators see, on the server's machine: the stack of an error.")
    ] = False,
    asked: Annotated[bool, typer.Option("--input", help="What was asked for, as JSON.")] = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Show everything about a task except its text."""
    if detail:
        from unbroken.cli import insight

        insight.show_task(load(data_dir=data_dir, redis_url=redis_url), task_id, as_json=as_json)
        return
    with Client(url) as client:
        if asked:
            show.as_json(client.get(f"/api/tasks/{quoted(task_id)}/input"))
            return
        task = client.task(task_id)
        title = None if as_json else client.titles([task_id]).get(task_id)
    if as_json:
        show.as_json(task)
        return
    task.pop("links", None)
    show.facts({"title": title, **task})


def result(task_id: TaskId, as_json: Json = False, url: Url = None) -> None:
    """Print the result: exactly the text, or JSON."""
    accept = "application/json" if as_json else "text/plain, application/json;q=0.5"
    with Client(url) as client:
        content = _fetch(client, task_id, accept)
    if sys.stdout.isatty() and not as_json:
        print(harmless(content.decode("utf-8", "replace")))
    else:
        _write(content)


def _fetch(client: Client, task_id: str, accept: str, digest: str = "") -> bytes:
    """The result's bytes. Raises Untrue when they are not those that `digest` (hex) speaks of."""
    path = f"/api/tasks/{quoted(task_id)}/result"
    content = client.call("GET", path, safe=True, headers={"Accept": accept}).content
    if digest and hashlib.sha256(content).hexdigest() != digest:
        raise Untrue("the result received is not the one that the server finished")
    return content


def _write(content: bytes) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def recover(
    task_id: TaskId,
    watch_it: Annotated[bool, typer.Option("--watch", "-w", help="Stay and show the text.")] = False,
    wait: Wait = False,
    as_json: Json = False,
    url: Url = None,
) -> int:
    """Continue a paused task from its checkpoint."""
    with Client(url) as client:
        answer = client.post(f"/api/tasks/{quoted(task_id)}/recover")
        if watch_it:
            kind = str(client.task(task_id)["kind"])
            return follow(client, task_id, kind, wait=wait, as_json=as_json)
    if as_json:
        show.as_json(answer)
    else:
        print(f"recovering\t{answer.get('recovery_id', '')}")
    return 0


def pause(task_id: TaskId, as_json: Json = False, url: Url = None) -> None:
    """Stop a task and keep its progress."""
    _ask(task_id, "pause", as_json, url)


def cancel(task_id: TaskId, as_json: Json = False, url: Url = None) -> None:
    """Stop a task for good."""
    _ask(task_id, "cancel", as_json, url)


def delete(task_id: TaskId, as_json: Json = False, url: Url = None) -> None:
    """Remove a task that has ended, with every trace. Asks nothing."""
    with Client(url) as client:
        client.delete(task_id)
    if as_json:
        show.as_json({"task_id": task_id, "deleted": True})
    else:
        print("deleted")


def _ask(task_id: str, what: str, as_json: bool, url: str | None) -> None:
    with Client(url) as client:
        answer = client.post(f"/api/tasks/{quoted(task_id)}/{what}")
    if as_json:
        show.as_json(answer)
    else:
        print(answer.get("state", "ok"))
