"""What is wrong with a value, in this project's own short sentences, whoever checked it. Pure.

pydantic finds what is wrong; how that is said is decided here, so that all refusals speak with one voice. The given
value is never repeated: it may be long or secret."""

from __future__ import annotations

import difflib
import inspect
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

NEEDED = "This field is needed."
A_TIME = "Must be a time, such as 2026-01-31T18:00:00Z."
_PLAIN = {
    "missing": NEEDED,
    "string_type": "Must be text.",
    "string_sub_type": "Must be text.",
    "string_unicode": "Must be text that UTF-8 can carry.",
    "int_type": "Must be a whole number.",
    "int_parsing": "Must be a whole number.",
    "int_from_float": "Must be a whole number.",
    "int_parsing_size": "This number is too large.",
    "float_type": "Must be a number.",
    "float_parsing": "Must be a number.",
    "finite_number": "Must be a finite number.",
    "bool_type": "Must be true or false.",
    "bool_parsing": "Must be true or false.",
    "list_type": "Must be a list.",
    "dict_type": "Must be an object.",
    "model_type": "Must be an object.",
    "model_attributes_type": "Must be an object.",
    "mapping_type": "Must be an object.",
    "none_required": "Must be null.",
    "path_type": "Must be a path.",
    "greater_than": "Must be more than {gt}.",
    "greater_than_equal": "Must be {ge} or more.",
    "less_than": "Must be less than {lt}.",
    "less_than_equal": "Must be {le} or less.",
    "multiple_of": "Must be a multiple of {multiple_of}.",
    "literal_error": "Must be one of {expected}.",
    "enum": "Must be one of {expected}.",
    "string_too_long": "Must be {max_length} characters or fewer.",
    "too_long": "Must be {max_length} entries or fewer.",
}
# Our own patterns, by what they are for; a pattern that is not here is a kind's own.
_PATTERNS = {
    r"\S": "Must not be blank.",
    r"^[^\x00-\x1f\x7f]+$": "Must be one line, without control characters.",
    r"^https?://[^\s\x00-\x1f]+$": "Must be an address that begins with https:// or http://, without spaces.",
}


def wrong_fields(error: ValidationError, model: type[BaseModel], limit: int = 50) -> list[tuple[tuple[str, ...], str]]:
    """(where, one sentence) for each thing that is wrong, at most `limit`. `model` is what was validated against."""
    found = error.errors(include_url=False, include_input=False)[:limit]
    return [(tuple(map(str, one["loc"])), sentence(one, model)) for one in found]


def sentence(one: Mapping[str, Any], model: type[BaseModel]) -> str:
    """One of pydantic's errors as a sentence."""
    what, about = str(one["type"]), {name: _plain(value) for name, value in (one.get("ctx") or {}).items()}
    if what == "extra_forbidden":
        return unknown(str(one["loc"][-1]), known_at(model, one["loc"][:-1]))
    if what in ("string_too_short", "too_short"):
        least = int(about.get("min_length", 1))
        thing = "characters" if what == "string_too_short" else "entries"
        return "Must not be empty." if least == 1 else f"Must be {least} {thing} or more."
    if what == "string_pattern_mismatch":
        pattern = str(about.get("pattern", ""))
        return _PATTERNS.get(pattern, f"Must fit the pattern {pattern}.")
    if what.startswith(("datetime_", "timezone_", "date_")):
        return A_TIME
    if what in _PLAIN:
        return _PLAIN[what].format(**about)
    # a validator's own words: ours, or those of a user's kind
    return _ended(str(one["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, "))


def _plain(value: Any) -> Any:
    """1000000 for 1000000.0: as people write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def unknown(name: str, known: Iterable[str], what: str = "field") -> str:
    """The sentence for a name that does not exist: the nearest one, else all that do."""
    names = sorted(known)
    near = closest(name, names)
    if near is not None:
        return f"There is no such {what}. Did you mean {near}?"
    return f"There is no such {what}. Known are {', '.join(names)}." if names else f"There is no such {what}."


def closest(name: str, known: Sequence[str]) -> str | None:
    """The known name that was probably meant, or None."""
    return next(iter(difflib.get_close_matches(name.lower(), known, 1, 0.7)), None)


def known_at(model: type[BaseModel], where: Sequence[int | str]) -> list[str]:
    """The names of the fields of the object at this place in a model; [] where that cannot be told."""
    at: type[BaseModel] | None = model
    for step in where:
        if isinstance(step, str):  # a number is a place in a list, whose entries' model was found already
            at = _model_in(at.model_fields[step].annotation) if at and step in at.model_fields else None
    return [field.alias or name for name, field in at.model_fields.items()] if at else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation speaks of, alone, in a list, or beside None."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, typing.get_args(annotation))), None)


def _ended(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip() or "This is not right"
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
