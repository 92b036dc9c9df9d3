"""The seam: whatever a server repeats, adds or trims, the joined text is the text."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unbroken.worker.backends.seam import ECHO, SHORT_ECHO, Seam, Surrogates

TEXT = (
    "The keeper climbed the stairs.\n\n  He lit the lamp – «naïve», 日本語 👩\u200d🚀🇳🇴 – and waited for the fog. "
    "Nobody came that night;\tnobody came the next.\n\n# Two\n\nThen a ship hooted three times: one, two, three."
)
cuts = st.integers(min_value=0, max_value=len(TEXT))
splits = st.lists(st.integers(min_value=0, max_value=len(TEXT) * 2), max_size=12)


def parts(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted(min(one, len(text)) for one in at), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def play(seam: Seam, answer: str, at: list[int]) -> str:
    return "".join(seam.feed(part) for part in parts(answer, at)) + seam.end()


@given(cuts, splits)
def test_exact_continuation(cut: int, at: list[int]) -> None:
    seam = Seam(TEXT[:cut])
    assert TEXT.startswith(seam.sent)
    assert TEXT[:cut] + play(seam, TEXT[len(seam.sent) :], at) == TEXT


@given(cuts, splits, st.sampled_from(["as sent", "exact", "trimmed", "indented"]))
def test_whole_prefix_repeated(cut: int, at: list[int], how: str) -> None:
    prefix = TEXT[:cut]
    assume(len(prefix.strip()) >= SHORT_ECHO)
    echoes = {
        "as sent": prefix.rstrip() + TEXT[len(prefix.rstrip()) :],
        "exact": TEXT,
        "trimmed": prefix.strip() + TEXT[len(prefix.rstrip()) :],
        "indented": "\n " + TEXT,
    }
    assert prefix + play(Seam(prefix), echoes[how], at) == TEXT


@given(cuts, splits, st.integers(min_value=ECHO + 4, max_value=60))
def test_last_characters_repeated(cut: int, at: list[int], length: int) -> None:
    prefix = TEXT[:cut]
    sent = prefix.rstrip()
    repeated = sent[-length:]
    assume(len(repeated.strip()) >= ECHO)
    assert prefix + play(Seam(prefix), repeated + TEXT[len(sent) :], at) == TEXT


@given(st.text(), st.text(), splits)
def test_never_invents_and_only_ever_cuts_the_beginning(prefix: str, answer: str, at: list[int]) -> None:
    assert answer.endswith(play(Seam(prefix), answer, at))


@given(st.text(alphabet="ab \n", max_size=40), st.text(alphabet="ab \n", max_size=60), splits)
def test_how_it_is_split_does_not_matter(prefix: str, answer: str, at: list[int]) -> None:
    assert play(Seam(prefix), answer, at) == play(Seam(prefix), answer, [])


def test_holds_back_only_what_could_be_a_repetition() -> None:
    seam = Seam("The keeper climbed the stairs and lit")
    assert seam.feed(" the") == ""
    assert seam.feed(" great") == " the great"
    assert seam.feed(" lamp") == " lamp"
    fresh = Seam("")
    assert fresh.feed("T") == "T"


def test_a_repetition_cut_by_a_limit_adds_nothing() -> None:
    prefix = "The keeper climbed the stairs and lit the lamp."
    assert play(Seam(prefix), prefix[:30], [3, 9]) == ""


def test_a_short_honest_end_is_kept() -> None:
    assert play(Seam("The keeper climbed the stairs"), " the", [2]) == " the"


@pytest.mark.parametrize(
    ("prefix", "answer", "added"),
    [
        ("One.\n\n", "Two", "Two"),
        ("One.\n\n", "\nTwo", "Two"),
        ("One.\n\n", "\n\n\nTwo", "\nTwo"),
        ("one ", " two", "two"),
        ("one ", "\n\nTwo", "\n\nTwo"),
        ("tha", "t", "t"),
        (" \n", " \nOne", "One"),
    ],
)
def test_white_space(prefix: str, answer: str, added: str) -> None:
    for at in range(len(answer)):
        assert play(Seam(prefix), answer, [at]) == added


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), splits)
def test_halves_of_a_character_are_joined(text: str, at: list[int]) -> None:
    """Split between any two UTF-16 units, as a server that cuts its JSON escapes does."""
    escaped = [json.loads(f'"\\u{unit:04x}"') for unit in memoryview(text.encode("utf-16-le")).cast("H")]
    whole = Surrogates()
    assert "".join(whole.feed("".join(part)) for part in _lists(escaped, at)) + whole.end() == text


@given(st.lists(st.sampled_from(["a", "\ud83c", "\udf0a", "é", ""])))
def test_whatever_comes_can_be_encoded(units: list[str]) -> None:
    whole = Surrogates()
    ("".join(whole.feed(unit) for unit in units) + whole.end()).encode()


def _lists(items: list[str], at: list[int]) -> list[list[str]]:
    edges = [0, *sorted(min(one, len(items)) for one in at), len(items)]
    return [items[a:b] for a, b in pairwise(edges)]
