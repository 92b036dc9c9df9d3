"""What a kind yields, looked at before anything is made of it. Pure.

Kinds are other people's code. What is no whole number (a Decimal, a number of numpy, an infinite float) would be found
out only where it is packed for Redis, together with what other tasks write; so it is found out here, and ends only the
run that yielded it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from unbroken.tasks.kind import Checkpoint, Item, Progress, Rewind, Text, Update

WHOLE_MAX = 2**53 - 1  # beyond it, Lua and the readers of JSON round
TEXT_MAX = 32 * 1024 * 1024  # characters at once: escaped and with its own bytes, below what Redis reads as one query
ITEM_MAX = 64 * 1024 * 1024  # bytes of one item's event


def whole(what: str, value: Any, low: int = 0) -> int:
    """`value` as an int of Python's own. Raises TypeError for what is no whole number, ValueError for one that is out
    of bounds."""
    try:
        number = int(operator.index(value))
    except TypeError:
        raise TypeError(f"{what} is a whole number, and not {type(value).__name__}") from None
    if not low <= number <= WHOLE_MAX:
        raise ValueError(f"{what} lies between {low} and {WHOLE_MAX}")
    return number


def checked(update: Update) -> Update:
    """The update with numbers that can be written. Raises TypeError or ValueError, in words for the kind's author."""
    match update:
        case Text():
            return _text(update)
        case Checkpoint():
            return update
        case Progress(done, total):
            return Progress(whole("done", done), None if total is None else whole("total", total))
        case Item(index, result, error):
            if error is not None and not isinstance(error, Mapping):
                raise TypeError(f"an item's error is a mapping, and not {type(error).__name__}")
            return Item(whole("index", index), result, error)
        case Rewind(offset):
            return Rewind(whole("offset", offset))
    raise TypeError(f"a kind yielded {type(update).__name__}, which is not an update")


def _text(update: Text) -> Text:
    if not isinstance(update.text, str):
        raise TypeError(f"a text is a str, and not {type(update.text).__name__}")
    if len(update.text) > TEXT_MAX:
        raise ValueError(f"a text of {len(update.text)} characters: at most {TEXT_MAX} at once")
    tokens, mark, count = update.tokens, update.mark, update.count
    if type(tokens) is tuple and all(map(_plain, tokens)) and _plain(count) and (mark is None or _plain(mark)):
        return update  # by far the most: no copy
    ids = tuple(whole("a token", token, -WHOLE_MAX) for token in tokens)
    mark = None if mark is None else whole("mark", mark, -WHOLE_MAX)
    return Text(update.text, ids, whole("count", count, -WHOLE_MAX), mark)


def _plain(value: Any) -> bool:
    return type(value) is int and -WHOLE_MAX <= value <= WHOLE_MAX
