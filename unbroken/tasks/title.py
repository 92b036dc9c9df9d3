"""A short title for an inbox's row: the first words of what was asked. Pure.

It is stored in the record, for the owner, and is not part of the task object, which holds nothing of the input."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

TITLE_MAX = 80  # characters
LOOKED_AT = 2_000  # characters of a prompt that are searched for its first line


def title_of(given: Mapping[str, Any]) -> str:
    """The title of a validated input: the first line of its prompt, first message of the user, instruction, or the
    names of its steps; for other kinds their first text, else their simple values. '' when there is nothing to say."""
    for name in ("prompt", "instruction"):
        if isinstance(given.get(name), str) and (found := first_line(given[name])):
            return found
    if found := _messages(given.get("messages")) or _steps(given.get("steps")):
        return found
    texts = (first_line(value) for value in given.values() if isinstance(value, str))
    simple = (f"{name} {value}" for name, value in given.items() if isinstance(value, int | float))
    return next(filter(None, texts), "") or first_line(", ".join(simple))


def first_line(text: str) -> str:
    """The first line that says something, on one line, without what a screen would obey, at most TITLE_MAX long."""
    for line in text[:LOOKED_AT].splitlines():
        # Cc and Cf: control characters and the marks that turn the direction of writing; Cs: half characters.
        shown = "".join(" " if unicodedata.category(c) in ("Cc", "Zs") else c for c in line)
        shown = "".join(c for c in shown if unicodedata.category(c) not in ("Cf", "Cs", "Co", "Cn"))
        words = " ".join(shown.split()).lstrip("#>*- ")
        if words:
            return words if len(words) <= TITLE_MAX else words[: TITLE_MAX - 1].rstrip() + "…"
    return ""


def _messages(messages: Any) -> str:
    if not isinstance(messages, list):
        return ""
    said = [one for one in messages if isinstance(one, dict) and isinstance(one.get("content"), str)]
    said.sort(key=lambda one: one.get("role") != "user")  # what the user said first, before any system message
    return next(filter(None, (first_line(one["content"]) for one in said)), "")


def _steps(steps: Any) -> str:
    if not isinstance(steps, list):
        return ""
    names = [str(step["name"]) for step in steps[:5] if isinstance(step, dict) and step.get("name")]
    return first_line(", ".join(names))
