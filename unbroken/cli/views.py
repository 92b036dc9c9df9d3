"""How a watched task looks: as JSON lines, as bare text for a pipe, or with a progress bar in a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from unbroken.cli.sink import Discard, Exact, Sink, harmless
from unbroken.cli.stream import Event, Fold
from unbroken.cli.watch import View

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live


class JsonLines:
    """Every event as one line, as it comes; for scripts that want more than text."""

    def event(self, event: Event, fold: Fold) -> None:
        """Print it."""
        print(json.dumps({"id": event.id, "event": event.name, "data": event.data}), flush=True)

    def connection(self, words: str) -> None:
        """Not for scripts."""

    def restart(self) -> None:
        """The offsets say it."""


class Bare:
    """The text and nothing else, to a pipe or file."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def event(self, event: Event, fold: Fold) -> None:
        """Write a chunk's text."""
        if event.name == "chunk":
            self._sink.put(int(event.data["offset"]), str(event.data["text"]))
        elif event.name == "done":
            self._sink.end()

    def connection(self, words: str) -> None:
        """Not for pipes."""

    def restart(self) -> None:
        """The sink knows what it has written."""


class Screen:
    """A progress bar at the bottom; above it the text as it comes, row by row (when `show_text`)."""

    def __init__(self, live: Live, console: Console, *, show_text: bool, inner: View | None = None) -> None:
        self._live = live
        self._console = console
        self._show_text = show_text
        self._inner = inner
        self._row = ""  # the last row, not finished yet
        self._fold = Fold()
        self._words = "connecting"

    def event(self, event: Event, fold: Fold) -> None:
        """Show what changed."""
        if self._inner:
            self._inner.event(event, fold)
        if self._show_text and event.name == "chunk":
            self._chunk(int(event.data["offset"]), str(event.data["text"]), fold)
        elif self._show_text and event.name == "item":
            self._item(event)
        self._fold = fold
        if fold.ended:
            self._flush()
        self._live.update(self._picture())

    def connection(self, words: str) -> None:
        """Show it beside the bar."""
        self._words = words
        self._live.update(self._picture())

    def restart(self) -> None:
        """Say that the text begins again."""
        if self._show_text:
            self._note("the stream had a gap: from the start again")
        self._row = ""

    def _chunk(self, offset: int, text: str, fold: Fold) -> None:
        if offset < self._shown:
            self._note(f"the text was taken back to character {offset}")
        self._shown = fold.length
        self._row += harmless(text)
        *rows, self._row = self._row.split("\n")
        for row in rows:
            self._print(row)
        from rich.text import Text

        wrapped = Text(self._row).wrap(self._console, max(20, self._console.width))
        for line in list(wrapped)[:-1]:
            self._print(line.plain)
        self._row = wrapped[-1].plain if len(wrapped) > 1 else self._row

    _shown: int = 0

    def _item(self, event: Event) -> None:
        index, good = event.data.get("index"), event.data.get("ok")
        body = event.data.get("result") if good else event.data.get("error")
        if isinstance(body, dict):
            body = body.get("text") or body.get("message") or json.dumps(body, ensure_ascii=False)
        first = harmless(" ".join(str(body).split()))
        width = max(20, self._console.width - 12)
        self._print(f"{'✓' if good else '✗'} {index}  {first[:width]}")

    def _note(self, words: str) -> None:
        from rich.text import Text

        if self._row:
            self._print(self._row)
            self._row = ""
        self._console.print(Text(f"— {words} —", style="dim"))

    def _print(self, row: str) -> None:
        from rich.text import Text

        # Text objects: no markup, no highlighting, whatever the model wrote.
        self._console.print(Text(row), soft_wrap=False)

    def _flush(self) -> None:
        if self._row:
            self._print(self._row)
            self._row = ""

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        fold = self._fold
        line = Table.grid(padding=(0, 1))
        known = fold.progress > 0 or bool(fold.total)
        counted = f"{fold.done}/{fold.total or '?'} {fold.unit or ''}" if fold.done is not None else ""
        line.add_row(
            ProgressBar(total=1.0, completed=fold.progress, width=30, pulse=not known and not fold.ended),
            Text(f"{fold.progress:4.0%}"),
            Text(_state_words(fold), style=STYLES.get(fold.state, "")),
            Text(counted, style="dim"),
            Text(f"saved to {fold.saved}" if fold.saved else "", style="dim"),
            Text(self._words, style="yellow"),
        )
        return Group(Text(self._row), line) if self._row else line


STYLES = {
    "completed": "green",
    "failed": "bold red",
    "cancelled": "red",
    "paused": "yellow",
    "recovering": "yellow",
    "processing": "cyan",
}


def _state_words(fold: Fold) -> str:
    return f"{fold.state} ({fold.reason})" if fold.reason else fold.state or "waiting"


@contextmanager
def view_for(*, kind: str, as_json: bool) -> Iterator[View]:
    """The right view for what stdout and stderr are."""
    if as_json:
        yield JsonLines()
        return
    to_terminal = sys.stdout.isatty()
    # The result of a batch is JSON and only complete at the end: a pipe gets it then.
    sink: Sink = Discard() if kind == "batch" else Exact(sys.stdout.buffer)
    if not to_terminal and not sys.stderr.isatty():
        yield Bare(sink)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=not to_terminal, highlight=False, markup=False, emoji=False)
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield Screen(live, console, show_text=to_terminal, inner=None if to_terminal else Bare(sink))
