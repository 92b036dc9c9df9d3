"""The `unbroken` script, and `python -m unbroken`. Imports nothing before Ctrl-C is looked after."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line. Returns the exit code."""
    from unbroken.cli.leave import leave_at_once

    leave_at_once()
    # httpx brings a command line of its own, for which it loads a terminal library and a highlighter of 500 languages:
    # a third of the time that our commands take to start. It does without when that cannot be loaded.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

    from unbroken.cli.main import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
