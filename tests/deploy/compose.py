"""Reads compose files as the compose command does, as far as ours need it: anchors and merge keys (YAML),
values from the environment, several files over one another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose.yaml"
COMPOSE_TLS = ROOT / "compose.tls.yaml"

_VALUE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:[-?])([^}]*))?\})")
_REPLACED = {"command", "entrypoint", "test"}  # lists of a later file that do not continue the earlier one


class NotSet(Exception):
    """A variable that has to be set is not; the message is the file's own."""


def interpolate(value: Any, given: Mapping[str, str]) -> Any:
    """`${NAME}`, `${NAME:-default}`, `${NAME:?message}` and `$$` in every string. Raises NotSet."""

    def one(found: re.Match[str]) -> str:
        dollar, name, kind, rest = found.groups()
        if dollar:
            return "$"
        if given.get(name):
            return given[name]
        if kind == ":?":
            raise NotSet(f"{name}: {rest}")
        return rest or ""

    if isinstance(value, str):
        return _VALUE.sub(one, value)
    if isinstance(value, dict):
        return {key: interpolate(item, given) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, given) for item in value]
    return value


def merge(under: Any, over: Any, key: str = "") -> Any:
    """A later file over an earlier one: mappings are joined, lists continue, all else is replaced."""
    if isinstance(under, dict) and isinstance(over, dict):
        joined = dict(under)
        for name, value in over.items():
            joined[name] = merge(under[name], value, name) if name in under else value
        return joined
    if isinstance(under, list) and isinstance(over, list) and key not in _REPLACED:
        return [*under, *over]
    return over


def load(*files: Path, given: Mapping[str, str]) -> dict[str, Any]:
    """The files as one document with all values filled in."""
    document: Any = {}
    for file in files:
        document = merge(document, yaml.safe_load(file.read_text()))
    shown = {key: value for key, value in document.items() if not key.startswith("x-")}
    result: dict[str, Any] = interpolate(shown, given)
    return result


def variables(*files: Path) -> set[str]:
    """Names of all variables that the files take from the environment."""
    return {found[2] for file in files for found in _VALUE.finditer(file.read_text()) if found[2]}


@dataclass(frozen=True)
class Service:
    """One service: what is started, with what environment."""

    name: str
    raw: dict[str, Any]

    @property
    def argv(self) -> list[str]:
        """Entry point and command. Both have to be lists: a string would be run by a shell."""
        entry, command = self.raw.get("entrypoint", []), self.raw["command"]
        assert isinstance(entry, list), f"{self.name}: entrypoint in exec form"
        assert isinstance(command, list), f"{self.name}: command in exec form"
        assert all(isinstance(word, str) for word in [*entry, *command]), f"{self.name}: quote what is no word"
        return [*entry, *command]

    @property
    def environment(self) -> dict[str, str]:
        """Its environment."""
        return {name: str(value) for name, value in self.raw.get("environment", {}).items()}

    def seconds(self, name: str) -> int:
        """A duration such as `30s`."""
        found = re.fullmatch(r"(\d+)s", self.raw[name])
        assert found is not None, f"{self.name}: {name} in whole seconds"
        return int(found[1])


def services(document: Mapping[str, Any]) -> dict[str, Service]:
    """The services by their names."""
    return {name: Service(name, raw) for name, raw in document["services"].items()}
