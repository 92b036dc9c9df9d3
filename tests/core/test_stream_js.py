"""The client that pages embed, run under node: its parser, its fold, and its connection against a real HTTP server."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "unbroken" / "static"
HERE = Path(__file__).parent / "test_stream_js_node"
SUITES = sorted(path.name for path in HERE.glob("*.test.mjs"))


def run(command: list[str], *, within_s: float) -> tuple[int, str]:
    """Runs it; returns its exit code and what it printed. In time or not, nothing of it stays: `node --test` has a
    process for each suite, which would go on when only its parent is killed."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=within_s)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate(timeout=30)  # as long as a child held the pipe, this would wait for it
            return process.returncode, f"{said}\nIt took longer than {within_s} s."
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


@pytest.mark.parametrize("suite", SUITES)
def test_under_node(suite: str) -> None:
    node = shutil.which("node")
    assert node, "node (20 or later) is needed to test stream.js; install it, the page is only half tested without"
    code, said = run([node, "--test", str(HERE / suite)], within_s=100)
    assert code == 0, said


def test_what_takes_too_long_is_ended_with_its_children() -> None:
    child = "import time; print('begun', flush=True); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    code, said = run([sys.executable, "-c", parent], within_s=3)
    assert code == -signal.SIGKILL
    assert "longer than 3 s" in said


def test_the_page_asks_for_all_its_modules_at_once() -> None:
    """Without a build step each import would be known only when its importer is here: one way to the server each."""
    asked = set(re.findall(r'(?:href|src)="/static/(\S+\.js)"', (STATIC / "index.html").read_text()))
    modules = {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js")}
    assert asked == modules - {"feed-worker.js"}


def test_there_are_suites() -> None:
    assert {"flapping.test.mjs", "fold.test.mjs", "follow.test.mjs", "parser.test.mjs"} <= set(SUITES)
