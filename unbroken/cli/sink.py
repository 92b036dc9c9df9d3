"""Where the text of a watched task goes: exactly to a pipe or file, readable to a terminal.

A text may be taken back (a rewind). A file is cut and written on; a terminal shows a line about it; a pipe has
already passed the text on, so the new text must repeat what was written. It nearly always does (a rewind to a
checkpoint, then the same tokens); where it does not, `Diverged` says that the pipe's reader holds a wrong text."""

from __future__ import annotations

import io
import os
import stat
from typing import IO, Protocol

from unbroken.tasks.errors import UnbrokenError

# Control characters are shown as pictures: a generated text must not move the cursor or change the title.
PICTURES = {c: 0x2400 + c for c in range(0x20) if c not in (0x09, 0x0A)} | {0x7F: 0x2421}
PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


class Diverged(UnbrokenError):
    """The text came out differently behind a rewind, and the beginning was already passed on."""


class Sink(Protocol):
    """Takes chunks as the fold does."""

    def put(self, offset: int, text: str) -> None:
        """Write a chunk that belongs at `offset` (code points)."""
        ...

    def end(self) -> None:
        """The text is complete."""
        ...


class Exact:
    """To a pipe or a file: the text's bytes and nothing else."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._parts: list[str] = []  # what the reader holds; joined only when something is taken back
        self._length = 0
        self._position = 0  # where in it the next character belongs
        self._start = _start(out)

    @property
    def _written(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def put(self, offset: int, text: str) -> None:
        """Write what is new. Raises Diverged."""
        held = self._written[offset : offset + len(text)] if offset < self._length else ""
        if held != text[: len(held)]:
            self._cut(offset)
            held = ""
        new = text[len(held) :]
        if new:
            self._out.write(new.encode("utf-8"))
            self._out.flush()
            self._parts.append(new)
            self._length += len(new)
        self._position = offset + len(text)

    def end(self) -> None:
        """Take back what a shorter second try left behind."""
        if self._position < self._length:
            self._cut(self._position)

    def _cut(self, offset: int) -> None:
        if self._start is None:
            raise Diverged(
                "the text was taken back and came out differently, but its first version was already passed on; "
                "`unbroken result ID` gives the right one"
            )
        kept = self._written[:offset]
        self._parts, self._length = [kept], len(kept)
        self._out.flush()
        self._out.seek(self._start + len(kept.encode("utf-8")))
        self._out.truncate()


def _start(out: IO[bytes]) -> int | None:
    """Where our text begins in a regular file; None for what cannot be cut."""
    try:
        if not stat.S_ISREG(os.fstat(out.fileno()).st_mode):
            return None
        # Opened for appending, the position is only known behind what is there already.
        return out.seek(0, os.SEEK_END)
    except (OSError, io.UnsupportedOperation):
        return None


class Discard:
    """Nowhere."""

    def put(self, offset: int, text: str) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def harmless(text: str) -> str:
    """Text that a terminal only shows."""
    return text.translate(PICTURES)
