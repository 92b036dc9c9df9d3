"""The inputs of all kinds as JSON Schema: those of this project, and those that the operator registered."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from unbroken.tasks.registry import BUILT_IN, Spec

log = logging.getLogger("unbroken.server")
Schema = dict[str, Any]
PLACE = "#/components/schemas/"


def inputs(kinds: Sequence[Spec]) -> tuple[dict[str, Schema], dict[str, str]]:
    """Components, and by the name of each kind that of its component."""
    made: dict[str, Schema] = {}
    names: dict[str, str] = {}
    for kind in kinds:
        name = _free(f"{_word(kind.name)}Input", made)
        # what a kind of this project is made of is shared; what others call the same need not be the same
        prefix = "" if kind.name in BUILT_IN else f"{name}."
        schema = _schema(kind, PLACE + prefix + "{model}")
        parts: dict[str, Schema] = schema.pop("$defs", {})
        made |= {prefix + part: what for part, what in parts.items()}
        made[name] = schema
        names[kind.name] = name
    return made, names


def _schema(kind: Spec, template: str) -> Schema:
    model: type[BaseModel] = kind.input
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a default that JSON does not know: left out
            return model.model_json_schema(ref_template=template)
    except Exception as error:  # somebody's own types may have no schema; that is no reason to show nothing
        log.warning("the input of the kind %s has no JSON Schema: %s", kind.name, type(error).__name__)
        return {"type": "object", "description": "Its fields cannot be described."}


def _word(name: str) -> str:
    """A kind's name as a component's: `my-kind` is MyKind. Only these letters are allowed there."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", name))


def _free(name: str, taken: dict[str, Schema]) -> str:
    while name in taken:
        name += "_"
    return name
