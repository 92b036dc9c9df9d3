"""Commands about the whole: dead letters, replay, stats."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unbroken.cli import show
from unbroken.cli.client import Client
from unbroken.cli.tasking import Json, Url
from unbroken.tasks.errors import NotFound

REPLAY_AT_ONCE = 500  # ids in one call
SERVER_AT_ONCE = 10_000  # dead letters that the server takes in one call


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
    """List failed tasks, grouped by kind and error. 1 when nothing is in the group that was named."""
    with Client(url) as client:
        answer = client.get("/api/dead-letters", group=group)
    if as_json:
        show.as_json(answer)
        return
    rows = answer["groups"] if group is None else answer["items"]
    if group is not None and not rows:
        raise no_group(group)
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
            wraps=("message",),
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
        wraps=("message",),
    )


def replay(
    task_ids: Annotated[list[str] | None, typer.Argument(help="Failed tasks.", metavar="ID...")] = None,
    group: Annotated[str | None, typer.Option(help="All of one group.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that failed.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> int:
    """Continue failed tasks from their checkpoints, with fresh budgets. 1 when one that was named was refused, or the
    group that was named is empty."""
    if sum((bool(task_ids), group is not None, everything)) != 1:
        raise typer.BadParameter("name tasks, or --group, or --all")
    with Client(url) as client:
        if task_ids:
            parts = [task_ids[at : at + REPLAY_AT_ONCE] for at in range(0, len(task_ids), REPLAY_AT_ONCE)]
            bodies: list[dict[str, Any]] = [{"task_ids": part} for part in parts]
        else:
            if group is not None and not client.get("/api/dead-letters", group=group, limit=1)["items"]:
                raise no_group(group)
            # One call takes only so many. Not asked more often than what has failed by now needs: what fails again
            # meanwhile is not replayed for ever.
            failed = int(client.get("/api/stats")["states"]["failed"])
            rounds = max(1, -(-failed // SERVER_AT_ONCE))
            bodies = [{"all": True} if group is None else {"group": group}] * rounds
        answers = _replay(client, bodies)
    refused = {task_id: why for answer in answers for task_id, why in answer.get("refused", {}).items()}
    code = int(bool(task_ids and refused))
    if as_json:
        show.as_json(answers[0] if len(answers) == 1 else answers)
        return code
    print(f"replayed\t{sum(answer['replayed'] for answer in answers)}")
    for task_id, why in refused.items():
        show.tell(f"{task_id}: {why}")
    return code


def no_group(group: str) -> NotFound:
    """Nothing to do is no success where somebody named it: most likely it is a typing error."""
    return NotFound(f"no failed task is in a group {group!r}; see `unbroken dead-letters`")


def _replay(client: Client, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    for body in bodies:
        answers.append(client.post("/api/dead-letters/replay", body))
        if "task_ids" not in body and answers[-1]["replayed"] == 0:
            break
    return answers


def stats(as_json: Json = False, url: Url = None) -> None:
    """Show queue depth, what is running, and how the last hour went."""
    with Client(url) as client:
        answer = client.get("/api/stats")
    if as_json:
        show.as_json(answer)
    else:
        show.facts(answer)
