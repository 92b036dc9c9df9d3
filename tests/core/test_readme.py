"""What the README shows is so."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel

from unbroken.tasks.kind import Kind
from unbroken.tasks.registry import strict
from unbroken.tasks.settings import OTHERS, Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """All fenced blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_kind_runs_as_it_stands() -> None:
    shown: dict[str, object] = {"__name__": "shown"}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), shown)
    kind = shown["Primes"]
    assert isinstance(kind, type)
    assert issubclass(kind, Kind)
    assert issubclass(kind.Input, BaseModel)
    assert strict(kind.Input).model_config["extra"] == "forbid"


def test_every_variable_that_is_named_exists() -> None:
    texts = [README, *(path.read_text() for path in (ROOT / "docs").glob("*.md"))]
    known = {name.upper() for name in Settings.model_fields} | OTHERS
    named = {name for text in texts for name in re.findall(r"UNBROKEN_([A-Z_]*[A-Z])\b", text)}
    assert named <= known


def test_every_local_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_setting_has_a_reason() -> None:
    """A comment on its line, or a string below it."""
    lines = (ROOT / "unbroken" / "tasks" / "settings.py").read_text().splitlines()
    for name in Settings.model_fields:
        at = next(n for n, line in enumerate(lines) if line.startswith(f"    {name}: "))
        assert "#" in lines[at] or lines[at + 1].lstrip().startswith('"""'), f"{name} has no reason beside it"
