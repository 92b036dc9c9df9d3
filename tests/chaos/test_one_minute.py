"""A short run of the chaos in the suite; long ones are `uv run python -m tests.chaos --minutes 30 --seed 7 8 9`.

The seed stays the same, so that a failure here can be repeated by everybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import chaos

SEED, SECONDS = 7, 30.0


@pytest.mark.timeout(300)
async def test_half_a_minute_of_everything_going_wrong(tmp_path: Path) -> None:
    report = await chaos(SEED, SECONDS, keep=tmp_path)
    print("\n".join(report.lines()))
    assert report.wrong == []
    assert len(report.history.cases) > 15
    assert sum(report.history.deeds.values()) > 10
