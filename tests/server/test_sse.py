"""Frames byte by byte, hostile input, and the fold's one rule: every id says exactly what is contained."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.logs import Log, logs, texts_of
from tests.server.site import View, parse
from unbroken.server import sse
from unbroken.tasks import events
from unbroken.tasks.events import EventId


def test_a_frame_byte_for_byte() -> None:
    data = events.chunk(7, 'a"\n\r\u2028🙂', 0.5)
    assert sse.frame("1767225600000-3", "chunk", data) == (
        b"id: 1767225600000-3\nevent: chunk\n"
        b'data: {"offset":7,"text":"a\\"\\n\\r\\u2028\\ud83d\\ude42","progress":0.5}\n\n'
    )
    assert sse.retry(1500) == b"retry: 1500\n"
    assert sse.HEARTBEAT == b":\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [("error", b"{}"), ("chunk", b"a\nb"), ("chunk", b'{"a":\r1}'), ("message", b"{}"), ("chunk", b""), ("", b"{}")],
)
def test_what_is_no_event_of_ours_makes_no_frame(name: str, data: bytes) -> None:
    assert sse.frame("1-1", name, data) == b""


@pytest.mark.parametrize("raw", ["abc", "1", "1-", "-2", "01-1", "1-01", "1 -1", "1-1\n", "1-1\0", "９-1", "1-1" * 20])
def test_a_malformed_cursor_is_told(raw: str) -> None:
    with pytest.raises(ValueError):
        sse.parse_cursor(raw)


def test_cursors() -> None:
    assert sse.parse_cursor(None) is sse.parse_cursor("") is sse.parse_cursor("-1") is None
    assert sse.parse_cursor("1767225600000-12") == EventId(1767225600000, 12)


def test_the_end_is_seen_only_where_it_is() -> None:
    evil = sse.frame("1-1", "chunk", events.chunk(0, "\nevent: done\ndata: {}\n\n", 0))
    assert not sse.ends(evil)
    for name in ("done", "failed", "cancelled"):
        assert sse.ends(evil + sse.frame("1-2", name, b"{}"))
        assert not sse.ends(sse.frame("1-2", name, b"{}") + evil)


def test_ids_of_a_run() -> None:
    run = sse.frame("5-9", "chunk", events.chunk(0, "\n\nid: 7-7\n", 0)) + sse.frame("6-10", "status", b"{}")
    assert sse.epoch_of(run) == 5
    assert sse.last_id(run) == EventId(6, 10)
    assert sse.last_id(sse.frame("5-9", "status", b"{}")) == EventId(5, 9)
    assert b"".join(sse.split(run)) == run
    assert len(sse.split(run)) == 2


@given(logs(), st.integers(0, 60))
def test_every_id_of_a_fold_says_exactly_what_is_contained(log: Log, cut: int) -> None:
    """G2: a viewer that knows everything up to any event, and gets the folded rest, may stop at any frame."""
    cut = min(cut, len(log.entries) - 1)
    texts = texts_of(log.entries)
    number = {entry[0]: at for at, entry in enumerate(log.entries)}
    view = View(text=texts[cut - 1] if cut else "")
    for frame in parse(b"".join(sse.fold(log.entries[cut:]))):
        view.take(frame)
        assert view.text == texts[number[frame.id]]
    assert view.text == texts[-1]


@given(logs())
def test_a_fold_leaves_nothing_out_that_counts(log: Log) -> None:
    frames = parse(b"".join(sse.fold(log.entries)))
    for name in ("status", "progress", "checkpoint"):
        all_of_it = [data for _, kind, data in log.entries if kind == name]
        kept = [frame.data for frame in frames if frame.name == name]
        assert kept == [json.loads(data) for data in all_of_it[-1:]]
    items = [json.loads(data) for _, kind, data in log.entries if kind == "item"]
    assert [frame.data for frame in frames if frame.name == "item"] == items
    assert all(len(frame.raw) <= sse.MAX_FRAME for frame in frames)


def test_fifty_thousand_tokens_are_a_handful_of_frames() -> None:
    log = Log()
    for _ in range(1000):
        log.chunk(len(log.text), "word ")
        log.add("progress", b'{"progress":0.1,"done":1,"total":2,"unit":"tokens"}')
    assert len(sse.fold(log.entries)) <= 3


def test_an_end_that_was_none_is_left_out() -> None:
    log = Log()
    log.chunk(0, "abc")
    log.add("failed", b'{"state":"failed","error":{}}')
    log.add("status", b'{"state":"recovering","attempt":1,"at":"x"}')
    log.chunk(3, "def")
    log.add("done", b'{"state":"completed"}')
    frames = parse(b"".join(sse.fold(log.entries)))
    assert [frame.name for frame in frames] == ["status", "chunk", "done"] or frames[-1].name == "done"
    view = View()
    for frame in frames:
        view.take(frame)
    assert (view.text, view.end) == ("abcdef", "done")
    assert all(frame.name != "failed" for frame in frames)


@given(st.binary(max_size=200), st.sampled_from(["chunk", "status", "item", "done", "x"]))
def test_hostile_data_breaks_nothing(data: bytes, name: str) -> None:
    log = Log()
    log.chunk(0, "ab")
    log.add(name, data)
    log.chunk(2, "cd")
    raw = b"".join(sse.fold(log.entries))
    assert raw.count(b"\n\n") == raw.count(b"\nevent: ")


@pytest.mark.parametrize(
    "data",
    [b"[]", b"{}", b'{"offset":-1,"text":"x"}', b'{"offset":true,"text":"x"}', b'{"offset":1e9,"text":"x"}',
     b'{"offset":0,"text":5}', b'{"offset":0,"text":"x","progress":"y"}', b"[" * 100_000],
)  # fmt: skip
def test_hostile_chunks_break_nothing(data: bytes) -> None:
    log = Log()
    log.chunk(0, "ab")
    log.add("chunk", data)
    assert b'"text":"' in b"".join(sse.fold(log.entries))


def test_a_surrogate_pair_that_was_cut_is_not_joined() -> None:
    """Joined, it would count as one code point instead of two."""
    log = Log()
    log.add("chunk", b'{"offset":0,"text":"a\\ud83d","progress":0}')
    log.add("chunk", b'{"offset":2,"text":"\\ude42b","progress":0}')
    frames = parse(b"".join(sse.fold(log.entries)))
    assert [frame.data["offset"] for frame in frames] == [0, 2]
