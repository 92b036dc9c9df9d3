"""A Dockerfile as a list of instructions in stages. Enough of the syntax for ours, and no more."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "Dockerfile"


@dataclass
class Stage:
    """One `FROM ... AS name` with what follows."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        """The arguments of each use of an instruction."""
        return [rest for name, rest in self.steps if name == instruction]

    def last(self, instruction: str) -> str:
        """The argument that counts. Raises IndexError where there is none."""
        return self.all(instruction)[-1]

    @property
    def environment(self) -> dict[str, str]:
        """What ENV sets (`NAME=value` pairs without spaces in them)."""
        pairs = (pair for rest in self.all("ENV") for pair in rest.split())
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}

    def exec_form(self, instruction: str) -> list[str]:
        """The words of CMD or ENTRYPOINT. Raises ValueError for the form that a shell runs."""
        words: list[str] = json.loads(self.last(instruction))
        return words


def stages(file: Path = FILE) -> dict[str, Stage]:
    """The stages by their names."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, Stage] = {}
    stage: Stage | None = None
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, alias = rest.partition(" AS ")
            stage = found.setdefault(alias, Stage(base, alias))
        else:
            assert stage is not None, f"{name} before FROM"
            stage.steps.append((name, " ".join(rest.split())))
    return found
