"""The CLI's parser and fold: any cut of the bytes, any repeat, any resume gives the same text."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.cli.stream import Event, Fold, NotOurs, Parser


def frame(number: int, name: str, **data: object) -> bytes:
    return f"id: 7-{number}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()


def chunks(texts: list[str]) -> list[bytes]:
    frames, offset = [], 0
    for number, text in enumerate(texts, 1):
        frames.append(frame(number, "chunk", offset=offset, text=text, progress=0.5))
        offset += len(text)
    return frames


def fold(events: list[Event]) -> Fold:
    folded = Fold()
    assert all(folded.apply(event) for event in events)
    return folded


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), max_size=12)


@given(TEXTS, st.data())
def test_bytes_may_be_cut_anywhere(texts: list[str], data: st.DataObject) -> None:
    raw = b"retry: 1500\n\n:\n" + b":\n".join(chunks(texts))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    parser = Parser()
    events = [e for a, b in pairwise([0, *cuts, len(raw)]) for e in parser.feed(raw[a:b])]
    assert fold(events).text == "".join(texts)
    assert [event.id for event in events] == [f"7-{n}" for n in range(1, len(texts) + 1)]
    assert parser.retry_ms == 1500


@given(TEXTS, st.data())
def test_repeats_and_resumes_change_nothing(texts: list[str], data: st.DataObject) -> None:
    """Cut after any event, come back at any event that was seen: the fold is the same in the end."""
    events = Parser().feed(b"".join(chunks(texts)))
    folded = Fold()
    seen = 0
    for _ in range(data.draw(st.integers(0, 5))):
        start = data.draw(st.integers(0, seen))  # never beyond what was seen
        seen = max(seen, data.draw(st.integers(start, len(events))))
        assert all(folded.apply(event) for event in events[start:seen])
    assert all(folded.apply(event) for event in events[seen:])
    assert folded.text == "".join(texts)
    assert folded.length == len(folded.text)


def test_one_byte_at_a_time_in_all_line_ends() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        parser = Parser()
        raw = b"".join(chunks(["é", "🌊", "!"])).replace(b"\n", end)
        events = [e for i in range(len(raw)) for e in parser.feed(raw[i : i + 1])]
        # With CR alone the last blank line could still become a CR LF, but nothing waits for that.
        assert fold(events).text == "é🌊!", end


def test_a_smaller_offset_takes_text_back() -> None:
    folded = Fold()
    folded.apply(Event("1-1", "chunk", {"offset": 0, "text": "The light🔦house"}))
    folded.apply(Event("1-2", "chunk", {"offset": 10, "text": " was off"}))
    assert folded.text == "The light🔦 was off"
    assert folded.rewinds == 1


def test_a_chunk_beyond_the_end_is_told() -> None:
    folded = Fold()
    folded.apply(Event("1-1", "chunk", {"offset": 0, "text": "abc"}))
    assert not folded.apply(Event("1-3", "chunk", {"offset": 4, "text": "e"}))
    assert folded.text == "abc"
    assert folded.last_id == "1-1"


def test_the_end_proves_the_text() -> None:
    text = "naïve 🌊"
    digest = hashlib.sha256(text.encode()).hexdigest()
    end = {"state": "completed", "length": len(text), "sha256": digest}
    for seen, right in ((text, True), ("naive 🌊", False), (text + "!", False)):
        folded = fold([Event("1-1", "chunk", {"offset": 0, "text": seen}), Event("1-2", "done", end)])
        assert folded.ended == "completed"
        assert folded.proven() is right


def test_status_items_and_failure_are_kept() -> None:
    folded = fold(
        [
            Event("1-1", "status", {"state": "paused", "reason": "worker_lost", "attempt": 1}),
            Event("1-2", "item", {"index": 3, "ok": True, "result": "x"}),
            Event("1-3", "progress", {"progress": 0.5, "done": 1, "total": 2, "unit": "items"}),
            Event("1-4", "failed", {"state": "failed", "error": {"code": "refused", "message": "no"}}),
        ]
    )
    assert folded.reason == "worker_lost"
    assert set(folded.items) == {3}
    assert folded.ended == "failed"
    assert folded.error == {"code": "refused", "message": "no"}


@pytest.mark.parametrize("data", [b"not json", b"[1]", b""])
def test_what_is_not_a_stream_of_ours_is_said(data: bytes) -> None:
    with pytest.raises(NotOurs):
        Parser().feed(b"event: chunk\ndata: " + data + b"\n\n")


def test_a_heartbeat_is_no_event() -> None:
    assert Parser().feed(b":\n:\n") == []
