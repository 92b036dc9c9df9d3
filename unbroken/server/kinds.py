"""The kinds of task that may be submitted: their inputs, units and sizes. Runs nothing."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from unbroken.tasks.inputs import BatchInput, ChainInput, TextInput
from unbroken.tasks.kind import Kind
from unbroken.tasks.settings import BadSetting, Settings

GROUP = "unbroken.kinds"


@dataclass(frozen=True, slots=True)
class Known:
    """One kind, as the server needs it."""

    name: str
    input: type[BaseModel]
    unit: str
    kind: type[Kind] | None = None

    def total(self, data: BaseModel) -> int | None:
        """How many units this input will take, where that is known before the start."""
        if isinstance(data, BatchInput):
            return len(data.items)
        if isinstance(data, ChainInput):
            return len(data.steps)
        return self.kind().total(data) if self.kind is not None else None


Kinds = dict[str, Known]


def load(settings: Settings) -> Kinds:
    """The built-in kinds and those of users. Raises BadSetting for a module that does not import."""
    found: Kinds = {
        "text": Known("text", TextInput, "tokens"),
        "batch": Known("batch", BatchInput, "items"),
        "chain": Known("chain", ChainInput, "steps"),
    }
    for kind in [*_from_modules(settings.kinds), *_from_entry_points()]:
        if kind.name in found and found[kind.name].kind is not kind:
            raise BadSetting(f"UNBROKEN_KINDS: two kinds are called {kind.name!r}")
        found[kind.name] = Known(kind.name, kind.Input, kind.unit, kind)
    return found


def _from_modules(names: str) -> list[type[Kind]]:
    found = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        try:
            module = importlib.import_module(name)
        except Exception as error:
            raise BadSetting(f"UNBROKEN_KINDS: {name} does not import: {error}") from error
        found += [value for value in vars(module).values() if _is_kind(value) and value.__module__ == module.__name__]
    return found


def _from_entry_points() -> list[type[Kind]]:
    found = []
    for point in entry_points(group=GROUP):
        try:
            value = point.load()
        except Exception as error:
            raise BadSetting(f"entry point {point.name} of {GROUP} does not load: {error}") from error
        if _is_kind(value):
            found.append(value)
    return found


def _is_kind(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Kind) and bool(getattr(value, "name", ""))
