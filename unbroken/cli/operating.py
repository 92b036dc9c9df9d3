"""Commands about the whole: dead letters, replay, stats."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unbroken.cli import show
from unbroken.cli.client import Client
from unbroken.cli.tasking import Json, Url

REPLAY_AT_ONCE = 500  # ids in one call


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("dead-letters")(dead_letters)
    app.command("replay")(replay)
    app.command("stats")(stats)


def dead_letters(
    group: Annotated[str | None, typer.Option(help="List the tasks of one group.")] = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """List failed tasks, grouped by kind and error."""
    with Client(url) as client:
        answer = client.get("/api/dead-letters", group=group)
    if as_json:
        show.as_json(answer)
        return
    rows = _listed(answer)
    if group is None:
        show.table(
            ("group", "count", "kind", "code", "message", "last"),
            [
                (
                    row.get("group"),
                    row.get("count"),
                    row.get("kind"),
                    (row.get("error") or {}).get("code"),
                    (row.get("error") or {}).get("message"),
                    show.age(row.get("last_failed_at")),
                )
                for row in rows
            ],
        )
        return
    show.table(
        ("id", "kind", "code", "message", "age"),
        [
            (
                row["task_id"],
                row["kind"],
                (row.get("error") or {}).get("code"),
                (row.get("error") or {}).get("message"),
                show.age(row.get("finished_at")),
            )
            for row in rows
        ],
    )


def _listed(answer: Any) -> list[dict[str, Any]]:
    """The rows of a list answer, whatever it calls them."""
    if isinstance(answer, list):
        return answer
    return next((value for value in answer.values() if isinstance(value, list)), [])


def replay(
    task_ids: Annotated[list[str] | None, typer.Argument(help="Failed tasks.", metavar="ID...")] = None,
    group: Annotated[str | None, typer.Option(help="All of one group.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that failed.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Continue failed tasks from their checkpoints, with fresh budgets."""
    if sum((bool(task_ids), group is not None, everything)) != 1:
        raise typer.BadParameter("name tasks, or --group, or --all")
    with Client(url) as client:
        if task_ids:
            parts = [task_ids[at : at + REPLAY_AT_ONCE] for at in range(0, len(task_ids), REPLAY_AT_ONCE)]
            bodies: list[dict[str, Any]] = [{"task_ids": part} for part in parts]
        elif group is not None:
            bodies = [{"group": group}]
        else:
            bodies = [{"group": row["group"]} for row in _listed(client.get("/api/dead-letters"))]
        answers = [client.post("/api/dead-letters/replay", body) for body in bodies]
    if as_json:
        show.as_json(answers[0] if len(answers) == 1 else answers)
        return
    print(f"replayed\t{sum(_count(answer) for answer in answers)}")


def _count(answer: Any) -> int:
    value = answer.get("replayed", 0) if isinstance(answer, dict) else 0
    return len(value) if isinstance(value, list) else int(value)


def stats(as_json: Json = False, url: Url = None) -> None:
    """Show queue depth, what is running, and how the last hour went."""
    with Client(url) as client:
        answer = client.get("/api/stats")
    if as_json:
        show.as_json(answer)
    else:
        show.facts(answer)
