"""`python -m unbroken`: the same as the `unbroken` script."""

import sys

from unbroken.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
