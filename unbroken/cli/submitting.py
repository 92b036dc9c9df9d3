"""`unbroken submit`: from the command line to a task."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from unbroken.cli import show
from unbroken.cli.client import ApiError, Client
from unbroken.cli.inputs import BadInput, build, duration_s, moment
from unbroken.cli.tasking import Json, Url, Wait, follow

BUILT_IN = ("text", "batch", "chain")
Prompt = Annotated[
    str | None,
    typer.Argument(help="The prompt; for a batch, the instruction; for a kind of your own, its input as JSON."),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Stay and show the text.")]
Kind = Annotated[str, typer.Option(help="text, batch, chain, or a kind of your own.")]
FROM_FILE = (
    "From a file; - is stdin. A text: the prompt, or what the prompt is about. A batch: one item a line, JSON lines or "
    'a JSON list. A chain: Markdown, a "# Name" for each step and its prompt below, or JSON [{"name", "prompt"}]. '
    "A kind of your own: a JSON object."
)
File = Annotated[str | None, typer.Option("--file", "-f", help=FROM_FILE)]
Priority = Annotated[str | None, typer.Option(help="high, normal or low.")]
Topic = Annotated[str | None, typer.Option(help="What it is about; to find it again.")]
Sender = Annotated[str | None, typer.Option(help="Who sends it; to find it again.")]
Recovery = Annotated[str | None, typer.Option(help="When a worker is lost: auto continues, manual pauses.")]
MaxTokens = Annotated[int | None, typer.Option(help="Length of the answer at most.")]
Temperature = Annotated[float | None, typer.Option(help="0 is the most likely text.")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same text.")]
System = Annotated[str | None, typer.Option(help="System message.")]
Model = Annotated[str | None, typer.Option(help="Model name.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds of work at most.")]
RunAt = Annotated[
    str | None,
    typer.Option(help="Not before, such as 2026-01-31T18:00:00Z; without a time zone it is this machine's."),
]
MaxAttempts = Annotated[int | None, typer.Option(help="Errors until it fails for good.")]
MaxCrashes = Annotated[int | None, typer.Option(help="Lost workers without progress until it pauses.")]
Cache = Annotated[
    str | None,
    typer.Option(help="Take a finished result of the same input that is not older, such as 90s, 10m, 1h or 7d."),
]
Callback = Annotated[str | None, typer.Option(help="Where to send a signed webhook when it is completed or failed.")]
More = Annotated[str | None, typer.Option("--input", help="More input fields, as JSON.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="The same key makes the same task, once.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("submit")(submit)


def submit(
    prompt: Prompt = None,
    watch: Watch = False,
    kind: Kind = "text",
    file: File = None,
    priority: Priority = None,
    topic: Topic = None,
    sender: Sender = None,
    recovery: Recovery = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    seed: Seed = None,
    system: System = None,
    model: Model = None,
    timeout: Timeout = None,
    run_at: RunAt = None,
    max_attempts: MaxAttempts = None,
    max_crashes: MaxCrashes = None,
    cache: Cache = None,
    callback: Callback = None,
    more: More = None,
    key: Key = None,
    wait: Wait = False,
    as_json: Json = False,
    url: Url = None,
) -> int:
    """Give a task. Prints its id; with --watch the text, as it comes."""
    sampling: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    sampling |= {"system": system, "model": model}
    options: dict[str, Any] = {"priority": priority, "topic": topic, "sender": sender}
    options |= {"recovery": recovery, "timeout_s": timeout, "callback": callback}
    options |= {"max_attempts": max_attempts, "max_crashes": max_crashes}
    try:
        options |= {"run_at": run_at and moment(run_at), "cache_s": cache and duration_s(cache)}
        made = build(kind, prompt, _read(file), {**_json_object(more), **_given(sampling)})
    except BadInput as error:
        raise typer.BadParameter(str(error)) from None
    with Client(url) as client:
        try:
            task = client.submit({"kind": kind, "input": made, **_given(options)}, key)
        except ApiError as error:
            raise (_wants_json(kind, made, error) or error) from None
        if watch:
            return follow(client, task["task_id"], kind, wait=wait, as_json=as_json)
    if as_json:
        show.as_json(task)
        return 0
    print(task["task_id"])
    if task.get("cached"):
        show.tell("it was done before; this is the finished task")
    elif sys.stdout.isatty():
        show.tell(f"watch it with: unbroken watch {task['task_id']}")
    return 0


def _wants_json(kind: str, made: Mapping[str, Any], error: ApiError) -> BadInput | None:
    """A kind of somebody's own was given words, and has no prompt: then its fields were meant, as JSON."""
    wrong = {str(one.get("field")): str(one.get("message")) for one in error.problem.get("errors") or ()}
    said = wrong.pop("input.prompt", None)
    if kind in BUILT_IN or said is None or "prompt" not in made:
        return None
    known = re.search(r"(?:Known are|Did you mean) ([\w, -]+)[.?]", said)  # the server's sentence about a name
    names = [name.removeprefix("input.") for name in wrong] or (known[1].split(", ") if known else ["field"])
    example = json.dumps(dict.fromkeys(names, "…"), ensure_ascii=False)
    return BadInput(f"the kind {kind} takes no prompt; its input is a JSON object, such as '{example}'")


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _json_object(raw: str | None) -> dict[str, Any]:
    if raw is None:
        return {}
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise typer.BadParameter(f"--input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter("--input must be a JSON object")
    return value


def _read(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file} is not UTF-8 text") from None
