"""How the server and a worker log: to stderr, one line an event, with the time unless a supervisor puts it there."""

from __future__ import annotations

import logging
import os
import sys

# They say something at every request or call, which is nobody's business by default.
CHATTY = ("uvicorn", "httpx", "httpx2", "httpcore", "openai")


def log_to_stderr(level: str) -> None:
    """Set up logging for this process. level: a name such as "info"."""
    stamp = "" if "UNBROKEN_SUPERVISED" in os.environ else "%(asctime)s "
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=f"{stamp}%(levelname)s %(name)s: %(message)s")
    if level != "debug":
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
