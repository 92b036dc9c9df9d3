"""How several processes share the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import turns

TESTS = Path(turns.__file__).parent


@pytest.mark.parametrize("place", [*turns.TOGETHER, *sorted(turns.LONG)])
def test_what_is_named_is_there(place: str) -> None:
    file, _, name = place.partition("::")
    assert f"def {name}" in (TESTS / file).read_text()


def test_a_group_is_one_piece_of_work_and_the_rest_is_not() -> None:
    one, other = (f"tests/journeys/test_1_reading.py::{name}" for name in ("test_a", "test_b[1-x::y]"))
    assert turns.group(one) == turns.group(other) == "reading"
    assert turns.group("tests/core/test_turns.py::test_a") is None
    long, short = ("tests/store/test_model.py::test_a", "tests/deploy/test_nginx.py::test_a")
    assert turns.turn(one) < turns.turn(long) < turns.turn(short)


def test_every_folder_has_its_turn() -> None:
    folders = {file.parent.name for file in TESTS.glob("*/test_*.py")}
    assert folders == set(turns.ORDER)
