"""Stop strings over piece borders."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unbroken.tasks.kind import Piece
from unbroken.worker.backends.stops import Stops

pieces = st.lists(st.text(alphabet="ab\n", max_size=4), max_size=12)
stop = st.text(alphabet="ab\n", min_size=1, max_size=5)


def play(stops: list[str], texts: list[str]) -> tuple[list[Piece], bool]:
    filtered = Stops(stops)
    out: list[Piece] = []
    for number, text in enumerate(texts):
        out += filtered.feed(Piece(text, (number,)))
        if filtered.found:
            return out, True
    return out + filtered.flush(), False


@given(pieces, stop)
def test_one_stop_cuts_where_the_whole_text_would_be_cut(texts: list[str], stop: str) -> None:
    whole = "".join(texts)
    out, found = play([stop], texts)
    assert found == (stop in whole)
    assert "".join(piece.text for piece in out) == whole.partition(stop)[0]


@given(pieces, st.lists(stop, max_size=3))
def test_shown_text_never_holds_a_stop_and_whole_pieces_keep_their_ids(texts: list[str], stops: list[str]) -> None:
    out, found = play(stops, texts)
    shown = "".join(piece.text for piece in out)
    assert not any(stop in shown for stop in stops)
    assert "".join(texts).startswith(shown)
    assert found or shown == "".join(texts)
    for piece in out:
        assert piece.tokens == () or texts[piece.tokens[0]] == piece.text


@given(pieces)
def test_without_stops_nothing_waits(texts: list[str]) -> None:
    filtered = Stops([])
    for text in texts:
        assert filtered.feed(Piece(text)) == [Piece(text)]
    assert filtered.flush() == []


def test_holds_back_no_more_than_needed() -> None:
    filtered = Stops(["###"])
    assert [p.text for p in filtered.feed(Piece("one"))] == ["one"]
    assert filtered.feed(Piece(" #")) == []
    assert [p.text for p in filtered.feed(Piece("two"))] == [" #", "two"]
