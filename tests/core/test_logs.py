"""Lines of the log: one time each, no chatter, and where Redis is when it is not there."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from tests.support.llama import free_port
from unbroken.tasks.keeping import check_keeping_once
from unbroken.tasks.settings import Settings

SAYS = """
import logging
from unbroken.tasks.logs import log_to_stderr
log_to_stderr("info")
logging.getLogger("httpx").info("chatter")
logging.getLogger("uvicorn").info("chatter")
logging.getLogger("unbroken").info("news")
"""


def said(**more: str) -> str:
    """What a process of ours writes."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("UNBROKEN_")} | more
    done = subprocess.run([sys.executable, "-c", SAYS], env=env, capture_output=True, text=True, check=True, timeout=60)
    return done.stderr


def test_one_time_a_line() -> None:
    assert said(UNBROKEN_SUPERVISED="1") == "INFO unbroken: news\n", "the supervisor puts the time before it"
    alone = said()
    assert alone.startswith("20")
    assert alone.endswith(" INFO unbroken: news\n")
    assert alone.count("\n") == 1


async def test_where_a_redis_is_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with caplog.at_level(logging.WARNING):
        await check_keeping_once(Settings(redis_url=f"redis://:secret@127.0.0.1:{port}/0"), name="test")
    assert f"redis://127.0.0.1:{port}/0" in caplog.text
    assert "secret" not in caplog.text
