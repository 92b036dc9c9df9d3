"""When a dead part comes back: quickly at first, never too rarely."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.cli.policy import Backoff, Deaths, how_it_ended


def test_the_first_restarts_are_quick_and_then_slower() -> None:
    deaths = Deaths(Backoff())
    assert [round(deaths.died(0.0), 2) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_part_that_ran_well_starts_afresh() -> None:
    deaths = Deaths(Backoff(stable_s=5))
    for _ in range(5):
        deaths.died(0.1)
    assert deaths.died(5.0) == pytest.approx(0.1)
    assert deaths.total == 6


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_a_pause_is_never_nothing_and_never_long(lives: list[float]) -> None:
    backoff = Backoff()
    deaths = Deaths(backoff)
    assert all(backoff.first_s <= deaths.died(life) <= backoff.cap_s for life in lives)


def test_a_part_that_dies_for_weeks_does_not_overflow() -> None:
    assert Backoff().pause(10_000_000) == Backoff().cap_s


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "ended"), (3, "failed with exit code 3"), (-9, "was killed"), (-15, "ended by signal 15")],
)
def test_an_end_in_words(code: int, words: str) -> None:
    assert how_it_ended(code) == words
