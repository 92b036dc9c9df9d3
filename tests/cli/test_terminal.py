"""In a terminal: a progress bar, rows of text as they come, and nothing that a terminal would obey."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

from tests.cli.test_stream import frame
from tests.cli.test_watch import TEXT, Log, log, log_of

__all__ = ["log"]


def in_terminal(*arguments: str, columns: int = 100) -> tuple[int, str]:
    """Run a command whose stdout and stderr are a terminal; its exit code and all that it wrote there."""
    parent, child = pty.openpty()
    env = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-m", "unbroken", *arguments], stdin=child, stdout=child, stderr=child, env=env
    )
    os.close(child)
    written = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([parent], [], [], 0.1)[0]:
            try:
                block = os.read(parent, 65_536)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            written += block
        elif process.poll() is not None:
            break
    code = process.wait(10)
    os.close(parent)
    return code, written.decode("utf-8", "replace")


def test_the_text_is_there_row_by_row_and_the_end_is_told(log: Log) -> None:
    code, written = in_terminal("watch", "s0-x", "--url", log.url)
    assert code == 0
    rows = [row.rstrip() for row in written.replace("\r", "").split("\n")]
    at = -1
    for row in TEXT.splitlines():
        at = next(n for n, shown in enumerate(rows) if n > at and row in shown)
    assert f"completed: {len(TEXT)} characters" in written
    assert "100%" in written


def test_generated_text_cannot_drive_the_terminal(log: Log) -> None:
    log.frames = log_of(["a\x1b]0;owned\x07b\x1b[2J\n", "[red]markup[/red] :smile:\n"])
    code, written = in_terminal("watch", "s0-x", "--url", log.url)
    assert code == 0
    assert "\x1b]0;" not in written
    assert "\x1b[2J" not in written
    assert "a␛]0;owned␇b␛[2J" in written
    assert "[red]markup[/red] :smile:" in written


def test_a_rewind_is_said_in_a_terminal(log: Log) -> None:
    log.frames = [
        frame(1, "chunk", offset=0, text="The lamp was lit.\n"),
        frame(2, "chunk", offset=9, text="went out.\n"),
        frame(3, "done", state="completed", length=19),
    ]
    code, written = in_terminal("watch", "s0-x", "--url", log.url)
    assert code == 0
    assert "taken back to character 9" in written
