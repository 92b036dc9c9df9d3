"""The `unbroken` script, and `python -m unbroken`. Imports nothing before Ctrl-C is looked after."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line. Returns the exit code."""
    from unbroken.cli import interrupt

    interrupt.leave_at_once()

    from unbroken.cli.main import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
