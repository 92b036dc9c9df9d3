"""What parts print: all of it in the file, the important lines on the terminal, nothing that a terminal obeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from unbroken.cli import logs
from unbroken.cli.logs import Output, harmless, important


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-01-01 INFO server: started", False),
        ("2026-01-01 WARNING worker: Redis does not answer", True),
        ("unbroken: UNBROKEN_LEASE_S: Input should be a valid number", True),
        ("Traceback (most recent call last):", True),
        ('{"level":"error","message":"x"}', True),
        ("a task called ERRORS is no error", False),
        ("12:M 30 Nov 2026 05:43:45.827 # WARNING Memory overcommit must be enabled!", False),
        ("12:M 30 Nov 2026 05:43:45.827 # Bad file format reading the append only file", True),
        ("12:M 30 Nov 2026 05:43:45.827 * Ready to accept connections", False),
    ],
)
def test_important_lines(line: str, shown: bool) -> None:
    assert important(line) is shown


def test_a_part_cannot_play_with_the_terminal() -> None:
    assert harmless("a\x1b[2Jb\x9b1m\rc\td") == "a\\x1b[2Jb\\x9b1m\\x0dc\td"
    assert len(harmless("x" * 100_000)) < 5_000


def test_a_part_that_loops_does_not_flood_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(tmp_path)
    for n in range(1000):
        output.line("worker-1", f"ERROR number {n}")
    output.line("server", "ERROR another part is still heard")
    output.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == logs.TERMINAL_LINES + 2
    assert lines[-1] == "server | ERROR another part is still heard"
    assert output.path.read_text().count("ERROR number") == 1000


def test_the_file_rotates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOG_BYTES", 10_000)
    output = Output(tmp_path)
    for n in range(2_000):
        output.line("server", f"line {n}")
    output.close()
    files = sorted(tmp_path.glob("unbroken.log*"))
    assert len(files) == logs.LOG_FILES + 1
    assert all(file.stat().st_size <= 10_100 for file in files)
    assert output.path.read_text().rstrip().endswith("line 1999")
