"""The output of the parts: all of it to a file that rotates, the important lines to the terminal."""

from __future__ import annotations

import logging
import logging.handlers
import re
import sys
import time
from collections import deque
from pathlib import Path

LOG_BYTES = 10 * 1024 * 1024  # of one file
LOG_FILES = 5  # kept beside the current one
TERMINAL_LINES = 20  # of one part in ten seconds; a part that loops must not flood the terminal
WINDOW_S = 10.0
LINE_MAX = 4_000  # characters; longer lines are cut

_IMPORTANT = re.compile(
    r"^unbroken: "  # a part that gives up
    r"|\b(WARN|WARNING|ERROR|CRITICAL|FATAL|Traceback)\b"
    r'|"level": ?"(warning|error|critical)"'
)
# Valkey marks its warnings with a hash between the time and the text.
_VALKEY_WARNING = re.compile(r"^\d+:[A-Z] .* # ")
# Advice for dedicated machines, and its farewell: for the file only.
_VALKEY_CHATTER = re.compile(r"overcommit|somaxconn|Transparent Huge|maximum open files|bye bye")
# What parts print may hold anything, a terminal must not obey it.
_CONTROL = {c: f"\\x{c:02x}" for c in [*range(0x20), *range(0x7F, 0xA0)] if c != 0x09}


def harmless(line: str) -> str:
    """The line without control characters, cut to a sensible length."""
    line = line.translate(_CONTROL)
    return line if len(line) <= LINE_MAX else line[:LINE_MAX] + " [cut]"


def important(line: str) -> bool:
    """Whether a person at the terminal should see it."""
    if _VALKEY_WARNING.match(line):
        return not _VALKEY_CHATTER.search(line)
    return bool(_IMPORTANT.search(line))


class Output:
    """Where lines go. Not thread-safe; used from one event loop."""

    def __init__(self, folder: Path, *, verbose: bool = False) -> None:
        self.path = folder / "unbroken.log"
        self._handler = logging.handlers.RotatingFileHandler(
            self.path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8"
        )
        self.path.chmod(0o600)
        self._verbose = verbose
        self._shown: dict[str, deque[float]] = {}

    def line(self, part: str, line: str, *, show: bool = True) -> None:
        """One line of a part's output; on the terminal only where important, and with `show`."""
        line = harmless(line)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"
        self._write(f"{stamp} {part:<9} | {line}")
        if (self._verbose or (show and important(line))) and self._may_show(part):
            self._terminal(f"{part} | {line}")

    def say(self, line: str) -> None:
        """A line of our own: to both."""
        self.line_of_supervisor(line)
        self._terminal(line)

    def line_of_supervisor(self, line: str) -> None:
        """A line of our own, to the file only."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"
        self._write(f"{stamp} {'up':<9} | {harmless(line)}")

    def close(self) -> None:
        """Close the file."""
        self._handler.close()

    def _write(self, line: str) -> None:
        try:
            self._handler.emit(logging.LogRecord("up", logging.INFO, "", 0, "%s", (line,), None))
        except (OSError, ValueError):
            return  # a full disk must not stop what still runs

    def _terminal(self, line: str) -> None:
        try:
            print(line, file=sys.stderr, flush=True)
        except (OSError, ValueError):
            return  # the terminal is gone; the parts go on

    def _may_show(self, part: str) -> bool:
        now = time.monotonic()
        shown = self._shown.setdefault(part, deque())
        while shown and now - shown[0] > WINDOW_S:
            shown.popleft()
        if len(shown) >= TERMINAL_LINES:
            return False
        shown.append(now)
        if len(shown) == TERMINAL_LINES:
            self._terminal(f"{part} | more lines are in {self.path}")
        return True
