"""A row of an inbox is found again by the first words of what was asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.tasks.title import TITLE_MAX, first_line, title_of


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        ({"prompt": "\n\n  Write a  story\tabout a lighthouse.\nSecond line"}, "Write a story about a lighthouse."),
        ({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi there"}]}, "Hi there"),
        ({"messages": [{"role": "assistant", "content": "Only me"}]}, "Only me"),
        ({"instruction": "Translate:", "items": ["a", "b"]}, "Translate:"),
        ({"steps": [{"name": "Plan", "prompt": "x"}, {"name": "Text", "prompt": "y"}]}, "Plan, Text"),
        ({"size": 64, "steps": 2000}, "size 64, steps 2000"),
        ({"number": 5, "url": "https://example.com/a"}, "https://example.com/a"),
        ({"prompt": "# A heading"}, "A heading"),
        ({"prompt": "red \x1b[31m and \u202eturned"}, "red [31m and turned"),
        ({}, ""),
    ],
)
def test_the_first_words(asked: dict[str, Any], title: str) -> None:
    assert title_of(asked) == title


def test_a_long_one_is_cut() -> None:
    cut = title_of({"prompt": "word " * 100})
    assert len(cut) <= TITLE_MAX
    assert cut.endswith("…")


@given(st.text())
def test_it_is_always_one_harmless_line(text: str) -> None:
    made = first_line(text)
    assert len(made) <= TITLE_MAX
    assert made.isprintable()
    made.encode()
