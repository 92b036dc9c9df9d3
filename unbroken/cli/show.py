"""Answers for eyes and for scripts: aligned and coloured in a terminal, tab-separated in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from unbroken.cli.sink import harmless
from unbroken.cli.views import STYLES
from unbroken.cli.widths import layout


def as_json(value: Any) -> None:
    """One JSON document: indented for a terminal, one line for a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(value, indent=indent, ensure_ascii=not sys.stdout.isatty()))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, gives: Sequence[str] = (), wraps: Sequence[str] = ()
) -> None:
    """A table with a head in a terminal; bare tab-separated lines in a pipe, so that `cut` and `wc -l` work.

    In a terminal columns without anything in them are left out. The columns `gives` are cut to the room that there is,
    and left out in this order where there is none; `wraps` are wrapped; all others are whole in any terminal."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(flat(cell) for cell in row))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[flat(cell) for cell in row] for row in rows]
    full = [at for at in range(len(columns)) if not cells or any(row[at] not in ("", "-") for row in cells)]
    natural = {at: max(cell_len(text) for text in (columns[at], *(row[at] for row in cells))) for at in full}
    numbers = {name: at for at, name in enumerate(columns)}
    room = Console().width
    fit = layout(natural, room, gives=[numbers[name] for name in gives], wraps=[numbers[name] for name in wraps])
    made = Table(box=None, pad_edge=False, header_style="dim", width=fit.total)
    for at, width in fit.widths.items():
        wrapped = columns[at] in wraps
        made.add_column(columns[at], width=width, no_wrap=not wrapped, overflow="fold" if wrapped else "ellipsis")
    for row in cells:
        made.add_row(*(Text(row[at], style=STYLES.get(row[at], "")) for at in fit.widths))
    # a row that is too long goes on in the terminal's next line, as text does: nothing of it is cut
    Console(highlight=False, width=max(room, fit.total)).print(made, crop=False)
    if fit.left_out:
        tell(f"no room for {', '.join(columns[at] for at in sorted(fit.left_out))} (--json has all)")


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
