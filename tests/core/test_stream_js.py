"""The client that pages embed, run under node: its parser, its fold, and its connection against a real HTTP server."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "unbroken" / "static"
HERE = Path(__file__).parent / "test_stream_js_node"
SUITES = sorted(path.name for path in HERE.glob("*.test.mjs"))


@pytest.mark.parametrize("suite", SUITES)
def test_under_node(suite: str) -> None:
    node = shutil.which("node")
    assert node, "node (20 or later) is needed to test stream.js; install it, the page is only half tested without"
    done = subprocess.run([node, "--test", str(HERE / suite)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_page_asks_for_all_its_modules_at_once() -> None:
    """Without a build step each import would be known only when its importer is here: one way to the server each."""
    asked = set(re.findall(r'(?:href|src)="/static/(\S+\.js)"', (STATIC / "index.html").read_text()))
    modules = {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js")}
    assert asked == modules - {"feed-worker.js"}


def test_there_are_suites() -> None:
    assert {"flapping.test.mjs", "fold.test.mjs", "follow.test.mjs", "parser.test.mjs"} <= set(SUITES)
