"""`uv run python -m tests.chaos --minutes 5 --seed 7`: everything goes wrong, nothing gets lost.

Each seed runs for its minutes and tells on stderr how far it is; a violation ends with exit code 1, says how to repeat
it, and keeps the diary and all logs. The weather and the orders come from the seed; what the machine makes of their
timing does not."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.chaos.run import chaos


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of bad weather, for each seed")
    parser.add_argument("--seed", type=int, nargs="+", default=[7])
    parser.add_argument("--customers", type=int, default=6, help="people who order at the same time")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=Path("chaos-failures"), help="where failed runs leave their logs")
    given = parser.parse_args()
    failed = False
    for seed in given.seed:
        run = chaos(
            seed, given.minutes * 60, customers=given.customers, workers=given.workers, keep=given.keep, say=_say
        )
        report = asyncio.run(run)
        print("\n".join(report.lines()), flush=True)
        if report.wrong:
            failed = True
            print(f"  again: uv run python -m tests.chaos --minutes {given.minutes:g} --seed {seed}")
            print(f"  kept: {report.kept}", flush=True)
    return int(failed)


def _say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
