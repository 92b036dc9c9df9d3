"""Measuring processes, and showing figures."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, all its threads."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / _TICK


def rss(pid: int) -> int:
    """Resident memory in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def peak(pid: int | str = "self") -> int:
    """The most resident memory there ever was, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("no VmHWM")


class Meter:
    """CPU and memory of some processes from here on."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._at = time.monotonic()
        self._cpu = sum(map(cpu_s, pids))
        self._rss = sum(map(rss, pids))

    @property
    def cpu(self) -> float:
        """Seconds of CPU since then."""
        return sum(map(cpu_s, self._pids)) - self._cpu

    @property
    def wall(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self._at

    @property
    def grown(self) -> int:
        """Bytes of memory since then."""
        return sum(map(rss, self._pids)) - self._rss


@dataclass
class Table:
    """Rows of figures under a title, as plain text."""

    title: str
    columns: Sequence[str]
    note: str = ""
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """One more row."""
        self.rows.append(cells)

    def show(self) -> None:
        """Print it in the form that Markdown understands too."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

        print(f"\n{self.title} (load {os.getloadavg()[0]:.1f})\n\n{line(self.columns)}")
        print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
        for cells in self.rows:
            print(line(cells))
        if self.note:
            print(f"\n{self.note}")
        print(flush=True)


def ms(us: float) -> str:
    """Microseconds as milliseconds."""
    value = us / 1000
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def big(value: float) -> str:
    """A large number with separators."""
    return f"{value:,.0f}"


def ratio(mine: float, other: float) -> str:
    """How often `other` goes into `mine`."""
    return f"{mine / other:.2f}" if other else "-"
