"""From what a person types to the body of a submit. Pure.

text    the prompt, or a file with it
batch   the instruction, and a file with the items: one a line, JSON lines, or a JSON list
chain   a file with the steps: Markdown headings with text below, or JSON
others  JSON, as the argument, in a file or as --input; any other argument is the prompt
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from unbroken.tasks.errors import UnbrokenError

_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$")
_DURATION = re.compile(r"^(\d{1,9}(?:\.\d{1,6})?)([smhd]?)\Z", re.ASCII)
_FENCE = re.compile(r"^[ ]{0,3}(```|~~~)")


class BadInput(UnbrokenError):
    """What was typed makes no task; the message says what is missing."""


def duration_s(raw: str) -> float:
    """Seconds of 90, 90s, 10m, 1h or 7d. Raises BadInput."""
    match = _DURATION.match(raw.strip())
    if match is None:
        raise BadInput(f"{raw!r} is no length of time; write 90s, 10m, 1h or 7d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]]


def moment(raw: str) -> str:
    """An ISO time with its zone; without one it is meant in the zone of this machine. Raises BadInput."""
    try:
        given = datetime.fromisoformat(raw.strip())
    except ValueError:
        raise BadInput(f"{raw!r} is no time; write 2026-01-31T18:00:00Z") from None
    return (given if given.tzinfo else given.astimezone()).isoformat()


def build(kind: str, prompt: str | None, file: str | None, extra: dict[str, Any]) -> dict[str, Any]:
    """The `input` of a submit. file: the text of --file. extra: fields that are added as they are."""
    if kind == "text":
        made = _text(prompt, file, extra)
    elif kind == "batch":
        made = _batch(prompt, file, extra)
    elif kind == "chain":
        made = _chain(prompt, file, extra)
    else:
        made = _other(prompt, file)
    return {**made, **extra}


def _text(prompt: str | None, file: str | None, extra: dict[str, Any]) -> dict[str, Any]:
    if prompt is not None and file is not None:
        # an instruction about a document, as `cat report.txt | unbroken submit "Summarise:" --file -`
        return {"prompt": f"{prompt}\n\n{file}"}
    if prompt is None and file is None:
        if "messages" in extra or "prompt" in extra:
            return {}
        raise BadInput('give a prompt: unbroken submit "Write a story about a lighthouse."')
    return {"prompt": prompt if prompt is not None else file}


def _batch(prompt: str | None, file: str | None, extra: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if prompt is not None:
        made["instruction"] = prompt
    elif "instruction" not in extra:
        raise BadInput('a batch needs an instruction: unbroken submit --kind batch "Translate:" --file items.txt')
    if file is not None:
        made["items"] = items(file)
    elif "items" not in extra:
        raise BadInput("a batch needs its items: --file items.txt (one a line), items.jsonl, or - for stdin")
    return made


def _chain(prompt: str | None, file: str | None, extra: dict[str, Any]) -> dict[str, Any]:
    written = file if file is not None else prompt
    if written is None:
        if "steps" in extra:
            return {}
        raise BadInput("a chain needs its steps: --file steps.md (a heading for each) or steps.json")
    return {"steps": steps(written)}


def _other(prompt: str | None, file: str | None) -> dict[str, Any]:
    if prompt is not None and prompt.lstrip().startswith("{"):
        try:
            given = json.loads(prompt)
        except ValueError as error:
            raise BadInput(f"the input is not JSON: {error}") from None
        return given if file is None else {**_other(None, file), **given}
    if file is None:
        return {} if prompt is None else {"prompt": prompt}
    try:
        made = json.loads(file)
    except ValueError as error:
        raise BadInput(f"the file is not JSON: {error}") from None
    if not isinstance(made, dict):
        raise BadInput("the file must hold a JSON object with the input's fields")
    return made if prompt is None else {"prompt": prompt, **made}


def items(text: str) -> list[str]:
    """The items of a batch: a JSON list, JSON lines, or one on each line that is not blank."""
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("["):
        try:
            return [_item(value, n) for n, value in enumerate(_list(json.loads(text)), 1)]
        except json.JSONDecodeError:
            pass  # lines that happen to begin with a bracket
    lines = [line.rstrip("\r") for line in text.split("\n") if line.strip()]
    if not lines:
        raise BadInput("there are no items in the file")
    if all(line.lstrip()[0] in '{"' for line in lines):
        try:
            return [_item(json.loads(line), n) for n, line in enumerate(lines, 1)]
        except json.JSONDecodeError:
            pass  # lines that happen to begin with a quote
    return lines


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise BadInput("the file must hold a list of items that is not empty")
    return value


def _item(value: Any, number: int) -> str:
    if isinstance(value, dict):
        value = next((value[name] for name in ("item", "text", "prompt", "input") if name in value), None)
    if not isinstance(value, str):
        raise BadInput(f'item {number} is neither a string nor an object with "item" or "text"')
    return value


def steps(text: str) -> list[dict[str, str]]:
    """The steps of a chain: JSON, or Markdown with a heading for each step and its prompt below."""
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in {"[", "{"}:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise BadInput(f"the steps are not JSON: {error}") from None
        value = value.get("steps") if isinstance(value, dict) else value
        return [_step(step, n) for n, step in enumerate(_list(value), 1)]
    return _markdown(text)


def _step(step: Any, number: int) -> dict[str, str]:
    if isinstance(step, str):
        return {"name": f"step {number}", "prompt": step}
    if not isinstance(step, dict) or not {"name", "prompt"} >= set(step) or "prompt" not in step:
        raise BadInput(f'step {number} must be a string, or an object with "name" and "prompt"')
    return {"name": str(step.get("name", f"step {number}")), "prompt": str(step["prompt"])}


def _markdown(text: str) -> list[dict[str, str]]:
    found: list[tuple[str, list[str]]] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))  # a comment in a code block is no heading
        heading = None if fenced else _HEADING.match(line)
        if heading:
            found.append((heading[1], []))
        elif found:
            found[-1][1].append(line)
        elif line.strip():
            raise BadInput("the steps begin with a heading: # Name, and its prompt below")
    made = [{"name": name, "prompt": "\n".join(body).strip() or name} for name, body in found]
    if not made:
        raise BadInput("there are no steps in the file: # Name, and its prompt below, for each")
    return made
