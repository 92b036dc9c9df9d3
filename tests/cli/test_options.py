"""Lengths of time and moments as people type them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from unbroken.cli.inputs import BadInput, duration_s, moment


@pytest.mark.parametrize(
    ("raw", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), (" 10m", 600), ("1h", 3_600), ("7d", 604_800), ("0", 0)]
)
def test_lengths_of_time(raw: str, seconds: float) -> None:
    assert duration_s(raw) == seconds


@pytest.mark.parametrize("raw", ["", "h", "-1h", "1w", "1h30m", "1e9", "٣h", "1 h", "nan", "9999999999"])
def test_what_is_no_length_of_time(raw: str) -> None:
    with pytest.raises(BadInput, match="no length of time"):
        duration_s(raw)


def test_a_moment_without_a_zone_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert datetime.fromisoformat(moment("2026-01-31T18:00:00Z")).utcoffset() == timedelta(0)
    assert moment("2026-01-31T18:00:00+05:30").endswith("+05:30")
    monkeypatch.setenv("TZ", "Etc/GMT-3")
    time.tzset()
    try:
        assert moment("2026-01-31T18:00") == "2026-01-31T18:00:00+03:00"
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(BadInput, match="no time"):
        moment("tomorrow")
