"""Reading an upstream's events from bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.tasks.errors import Transient
from unbroken.worker.backends import sse_lines
from unbroken.worker.backends.sse_lines import Events

TEXTS = ["plain", "日本語 👩\u200d🚀", "\u2028\u2029\x85\x0b\x0c", " two spaces", "a: b", ""]


def read(raw: bytes, at: list[int]) -> list[str]:
    events = Events()
    edges = [0, *sorted(min(one, len(raw)) for one in at), len(raw)]
    got = [data for a, b in pairwise(edges) for data in events.feed(raw[a:b])]
    return got + list(events.end())


@given(
    st.lists(st.sampled_from(TEXTS), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 200)),
    st.booleans(),
)
def test_any_line_end_and_any_split(texts: list[str], end: str, at: list[int], last_blank: bool) -> None:
    raw = f"{end}{end}".join(f": ping{end}id: 7{end}data: {text}" for text in texts)
    raw += end * 2 if last_blank else ""
    assert read(raw.encode(), at) == texts


def test_several_data_lines_are_one_event() -> None:
    assert read(b"data: {\ndata:  1}\n\ndata:x\n\n", [3]) == ["{\n 1}", "x"]


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_lines, "EVENT_MAX", 100)
    events = Events()
    with pytest.raises(Transient):
        list(events.feed(b"data: " + b"x" * 200))
