"""Answers for eyes and for scripts: aligned and coloured in a terminal, tab-separated in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from unbroken.cli.sink import harmless
from unbroken.cli.views import STYLES


def as_json(value: Any) -> None:
    """One JSON document: indented for a terminal, one line for a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(value, indent=indent, ensure_ascii=not sys.stdout.isatty()))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table with a head in a terminal; bare tab-separated lines in a pipe, so that `cut` and `wc -l` work."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(flat(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(*columns, box=None, pad_edge=False, header_style="dim")
    for row in rows:
        made.add_row(*(Text(flat(cell), style=STYLES.get(str(cell), "")) for cell in row))
    Console(highlight=False).print(made)


def facts(value: Mapping[str, Any]) -> None:
    """Names and values, one a line; nested values as `name.inner`. Empty ones are left out in a terminal."""
    rows = list(_flatten(value))
    if sys.stdout.isatty():
        rows = [(name, cell) for name, cell in rows if cell not in (None, "", [], {})]
        width = max((len(name) for name, _ in rows), default=0)
        for name, cell in rows:
            print(f"{name:<{width}}  {flat(cell)}")
        return
    for name, cell in rows:
        print(f"{name}\t{flat(cell)}")


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, cell in value.items():
        if isinstance(cell, Mapping) and cell:
            yield from _flatten(cell, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", cell


def flat(cell: Any) -> str:
    """A value on one line, harmless to a terminal."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:g}"
    if isinstance(cell, list | dict):
        cell = json.dumps(cell, ensure_ascii=False)
    return harmless(str(cell)).replace("\t", " ").replace("\n", " ")


def age(stamp: str | None, now: datetime | None = None) -> str:
    """How long ago an ISO time was, in one unit: 12s, 5m, 3h, 2d."""
    if not stamp:
        return "-"
    seconds = max(0, int(((now or datetime.now(UTC)) - datetime.fromisoformat(stamp)).total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def tell(words: str) -> None:
    """A remark beside the output, for people: to stderr."""
    print(harmless(words), file=sys.stderr)
