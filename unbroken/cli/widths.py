"""How wide each column of a table in a terminal may be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GAP = 2  # between two columns
LEAST = 12  # of a column that gives way; below that it says nothing
READABLE = 20  # of one that is wrapped


@dataclass(frozen=True, slots=True)
class Layout:
    """widths: by the number of each column that is shown. left_out: numbers of those that had no room."""

    widths: Mapping[int, int]
    left_out: Sequence[int] = ()

    @property
    def total(self) -> int:
        """Of a whole row."""
        return sum(self.widths.values()) + GAP * max(0, len(self.widths) - 1)


def layout(natural: Mapping[int, int], room: int, *, gives: Sequence[int] = (), wraps: Sequence[int] = ()) -> Layout:
    """Fit columns of these natural widths into `room`. Columns in neither list keep their width whatever happens: what
    somebody has to copy is whole, and a row may be longer than the terminal. `gives` are cut, the widest first, and
    left out in the order in which they are named where even that is not enough; `wraps` are only ever wrapped."""
    left_out: list[int] = []
    for leaving in (None, *(at for at in gives if at in natural)):
        if leaving is not None:
            left_out.append(leaving)
        shown = {at: width for at, width in natural.items() if at not in left_out}
        least = {at: min(width, _least(at, gives, wraps, width)) for at, width in shown.items()}
        if Layout(least).total <= room:
            break
    soft = [at for at in shown if least[at] < shown[at]]
    while Layout(shown).total > room and (soft := [at for at in soft if shown[at] > least[at]]):
        widest = max(soft, key=lambda at: shown[at])
        shown[widest] -= 1
    return Layout(shown, left_out)


def _least(at: int, gives: Sequence[int], wraps: Sequence[int], width: int) -> int:
    if at in gives:
        return LEAST
    return READABLE if at in wraps else width
