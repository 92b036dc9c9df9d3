"""Text to a pipe or a file is exact, also when part of it was taken back."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.cli.sink import Diverged, Exact, harmless
from unbroken.cli.stream import Event, Fold

STORY = "Der Leuchtturm – 灯台 🔦\nwar aus."


def pipe() -> io.BytesIO:
    return io.BytesIO()  # has no file number, so it cannot be cut, as a pipe cannot


@given(st.lists(st.tuples(st.integers(0, len(STORY)), st.integers(0, len(STORY)))))
def test_a_pipe_gets_each_character_once_however_often_it_is_sent(spans: list[tuple[int, int]]) -> None:
    out = pipe()
    sink = Exact(out)
    seen = 0
    for a, b in [*spans, (0, len(STORY))]:
        start = min(a, b, seen)
        sink.put(start, STORY[start : max(a, b)])
        seen = max(seen, a, b)
    sink.end()
    assert out.getvalue() == STORY.encode()


def test_a_pipe_cannot_take_back_and_says_so() -> None:
    sink = Exact(pipe())
    sink.put(0, "The lamp was lit")
    sink.put(4, "l")
    sink.put(5, "amp")
    with pytest.raises(Diverged, match="unbroken result"):
        sink.put(8, " broke")


def test_a_pipe_with_more_than_the_text_says_so() -> None:
    sink = Exact(pipe())
    sink.put(0, "The lamp was lit")
    sink.put(0, "The lamp")
    with pytest.raises(Diverged):
        sink.end()


@given(
    st.lists(st.tuples(st.floats(0, 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=6))),
    st.booleans(),
)
def test_a_file_follows_every_rewind(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[tuple[float, str]], append: bool
) -> None:
    path = tmp_path_factory.mktemp("sink") / "out"
    path.write_bytes(b"before\n")
    fold = Fold()
    with path.open("ab" if append else "r+b") as out:
        sink = Exact(out)
        for where, text in chunks:
            offset = int(where * fold.length)
            sink.put(offset, text)
            assert fold.apply(Event("", "chunk", {"offset": offset, "text": text}))
        sink.end()
    assert path.read_bytes() == b"before\n" + fold.text.encode()


def test_a_terminal_is_not_obeyed() -> None:
    assert harmless("a\x1b]0;title\x07b\x9bc\td\n") == "a␛]0;title␇b\ufffdc\td\n"
