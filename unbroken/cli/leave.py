"""Ctrl-C while there is nothing to tidy: the process leaves, without a word. Loads next to nothing, so that it can be
the first thing that the command line does."""

import os
import signal

CODE = 130  # what shells report for a command that SIGINT ended


def leave_at_once() -> None:
    """From now on Ctrl-C ends the process. Only where Python's own handler is in place."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def leave(*_: object) -> None:
    """The handler."""
    os._exit(CODE)
