"""When a part that died is started again. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """first_s: pause after the first death. factor: growth with each further one. cap_s: the longest pause.
    stable_s: a part that ran this long was well, and its next death counts as the first again.

    The first restarts are quick, because a worker that is killed once should be missed for less than a
    second; the cap is low, because a part that comes back late is worse than a few processes too many."""

    first_s: float = 0.1
    factor: float = 2.0
    cap_s: float = 5.0
    stable_s: float = 5.0

    def pause(self, deaths: int) -> float:
        """Seconds to wait after the `deaths`-th death in a row (1, 2, ...)."""
        # The exponent is bounded: a float overflows at about 2**1024, and a part may die for weeks.
        return min(self.cap_s, self.first_s * self.factor ** min(max(deaths, 1) - 1, 64))


@dataclass(slots=True)
class Deaths:
    """Counts the deaths of one part."""

    backoff: Backoff
    in_a_row: int = 0
    total: int = 0

    def died(self, ran_s: float) -> float:
        """Note a death after `ran_s` seconds of life; returns the seconds to wait before the restart."""
        self.in_a_row = 1 if ran_s >= self.backoff.stable_s else self.in_a_row + 1
        self.total += 1
        return self.backoff.pause(self.in_a_row)


def how_it_ended(code: int) -> str:
    """A return code in words for people: negative codes are signals, as subprocess reports them."""
    if code == 0:
        return "ended"
    if code > 0:
        return f"failed with exit code {code}"
    return "was killed" if code == -9 else f"ended by signal {-code}"
