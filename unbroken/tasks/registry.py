"""Which kinds exist, for whoever needs only their names and inputs (the server) and for whoever runs them (the
worker). The built-in ones are described here, so that the server never imports a worker's module.

Users' kinds come by entry point (group `unbroken.kinds`: a class or a module) and by UNBROKEN_KINDS=module,module:
every class of such a module that subclasses Kind and is defined in it."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict

from unbroken.tasks.errors import UnbrokenError
from unbroken.tasks.inputs import BatchInput, ChainInput, PlainBatch, PlainChain, PlainText, Sampling, TextInput
from unbroken.tasks.kind import Kind, Registry
from unbroken.tasks.settings import Settings

GROUP = "unbroken.kinds"


class BadKind(UnbrokenError):
    """A kind cannot be loaded; the message names the module and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A kind as a submit sees it. total: how many units the (validated) input will take, where known."""

    name: str
    input: type[BaseModel]
    unit: str
    total: Callable[[Any], int | None]


def text_total(data: Sampling) -> int | None:
    """Tokens at most."""
    script = getattr(data, "scripted", None)
    return script.tokens if script else data.max_tokens


BUILT_IN: Mapping[str, Spec] = {
    "text": Spec("text", TextInput, "tokens", text_total),
    "batch": Spec("batch", BatchInput, "items", lambda data: len(data.items)),
    "chain": Spec("chain", ChainInput, "steps", lambda data: len(data.steps)),
}

"""The built-in kinds where the backend is a script, with what a task may tell it."""

WITHOUT_SCRIPT: Mapping[str, Spec] = {
    name: replace(BUILT_IN[name], input=model)
    for name, model in (("text", PlainText), ("batch", PlainBatch), ("chain", PlainChain))
}
"""The same with every other backend."""


def user_kinds(settings: Settings) -> list[type[Kind]]:
    """Users' kinds; modules may also lie in the current folder. Raises BadKind."""
    if settings.kinds and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that what lies there shadows nothing
    found: list[type[Kind]] = []
    for point in importlib.metadata.entry_points(group=GROUP):
        loaded = _guarded(point.load, f"entry point {point.name} ({point.value})")
        found += _kinds_of(loaded, point.value) if isinstance(loaded, ModuleType) else [_as_kind(loaded, point.value)]
    for name in filter(None, (part.strip() for part in settings.kinds.split(","))):
        module = _guarded(partial(importlib.import_module, name), f"UNBROKEN_KINDS: module {name}")
        found += _kinds_of(module, f"UNBROKEN_KINDS: module {name}")
    return list(dict.fromkeys(found))


def _guarded(load: Callable[[], Any], what: str) -> Any:
    try:
        return load()
    except Exception as error:
        raise BadKind(f"{what} cannot be imported: {type(error).__name__}: {error}") from error


def _kinds_of(module: ModuleType, name: str) -> list[type[Kind]]:
    found = [
        thing
        for _, thing in inspect.getmembers(module, inspect.isclass)
        if issubclass(thing, Kind) and thing is not Kind and thing.__module__ == module.__name__
    ]
    if not found:
        raise BadKind(f"{name} has no class that subclasses unbroken.tasks.kind.Kind")
    return found


def _as_kind(thing: Any, name: str) -> type[Kind]:
    if inspect.isclass(thing) and issubclass(thing, Kind):
        return thing
    raise BadKind(f"{name} is not a subclass of unbroken.tasks.kind.Kind")


def register(kinds: Iterable[type[Kind]], registry: Registry | None = None) -> Registry:
    """Add the kinds to a registry. Raises BadKind for a bad or taken name."""
    registry = registry or Registry()
    for kind in kinds:
        try:
            registry.add(kind)
        except ValueError as error:
            raise BadKind(str(error)) from error
    return registry


def strict(model: type[BaseModel]) -> type[BaseModel]:
    """The same model, which refuses unknown fields unless it says something about them itself."""
    if "extra" in model.model_config:
        return model
    made = {"model_config": ConfigDict(extra="forbid"), "__module__": model.__module__, "__doc__": model.__doc__}
    return type(model.__name__, (model,), made)


def specs(settings: Settings) -> dict[str, Spec]:
    """All kinds by name, for the server. Raises BadKind. A server that was not told what its workers' backend is leaves
    it to them whether a task may bring a script."""
    told = "backend" in settings.model_fields_set
    found = dict(WITHOUT_SCRIPT if told and settings.backend != "scripted" else BUILT_IN)
    for kind in register(user_kinds(settings)).kinds.values():
        if kind.name in BUILT_IN:
            raise BadKind(f"the name {kind.name!r} is taken by a built-in kind")
        found[kind.name] = Spec(kind.name, strict(kind.Input), kind.unit, kind().total)
    return found
