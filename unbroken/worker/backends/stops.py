"""Stop strings, found over the borders of pieces. Pure.

Done here and not by the model's server, because one answer is made of several requests there, and a stop
string may lie across two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from unbroken.tasks.kind import Piece


class Stops:
    """Feed it pieces, get back those that are certain not to belong to a stop string.

    Whole pieces are held back while their end could be the beginning of a stop string; without stop strings
    nothing ever is."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held: deque[Piece] = deque()
        self.found = False

    def feed(self, piece: Piece) -> list[Piece]:
        """What may be shown now. After `found`, nothing follows."""
        if not self._stops:
            return [piece]
        self._held.append(piece)
        text = "".join(held.text for held in self._held)
        places = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if places:
            self.found = True
            return self._take(min(places), cut=True)
        return self._take(self._doubtful(text), cut=False)

    def flush(self) -> list[Piece]:
        """The rest, when the answer ended without a stop string."""
        rest = list(self._held)
        self._held.clear()
        return rest

    def _doubtful(self, text: str) -> int:
        """Where the longest end of `text` starts that could still become a stop string; its length if
        none."""
        longest = max(len(stop) for stop in self._stops) - 1
        for at in range(max(0, len(text) - longest), len(text)):
            tail = text[at:]
            if any(stop.startswith(tail) for stop in self._stops):
                return at
        return len(text)

    def _take(self, upto: int, *, cut: bool) -> list[Piece]:
        """Whole pieces that end at or before `upto`; with `cut`, also the beginning of the piece it lies
        in."""
        out: list[Piece] = []
        at = 0
        while self._held and at + len(self._held[0].text) <= upto:
            piece = self._held.popleft()
            at += len(piece.text)
            out.append(piece)
        if cut:
            if self._held and at < upto:
                # A token cut in two has no id for its half.
                out.append(replace(self._held[0], text=self._held[0].text[: upto - at], tokens=(), save=None))
            self._held.clear()
        return out
