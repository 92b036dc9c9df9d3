"""Parameters of a query, checked like the fields of a body: a typing error is seen, not ignored.

Streams are the exception: what browsers, proxies and polyfills add to an address must not keep a viewer away."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from starlette.requests import Request

from unbroken.server.problems import field_error
from unbroken.tasks.words import unknown


def query(request: Request, *known: str, several: Collection[str] = ()) -> Mapping[str, str]:
    """The query, in which only `known` names may stand, each once, and those in `several` any number of times.
    Raises Problem 422."""
    given = request.query_params
    for name in given:
        if name not in known and name not in several:
            raise field_error(name[:100], unknown(name[:100], [*known, *several], "parameter"))
        if name not in several and len(given.getlist(name)) > 1:
            raise field_error(name, "Must be given once.")
    return given


def one_of(raw: str | None, name: str, choices: Collection[str]) -> str | None:
    """One of some words, or None when nothing was given. Raises Problem 422."""
    if raw is not None and raw not in choices:
        raise field_error(name, f"Must be one of {', '.join(choices)}.")
    return raw


def whole(raw: str | None, name: str, *, default: int, low: int, high: int) -> int:
    """A whole number. Raises Problem 422."""
    if raw is None or raw == "":
        return default
    if not (raw.isascii() and raw.isdigit() and len(raw) <= 15 and low <= int(raw) <= high):
        raise field_error(name, f"Must be a whole number from {low} to {high}.")
    return int(raw)
