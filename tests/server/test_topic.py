"""A topic takes pushes in any order, late, twice or never, and always hands on a whole run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.server import sse
from unbroken.server.topic import Topic, Viewer
from unbroken.tasks.events import EventId


class Ear:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.woken = 0
        self.takes = True

    def wake(self) -> None:
        self.woken += 1

    def beat(self) -> None: ...

    def end(self) -> None: ...

    def write(self, data: bytes) -> bool:
        if self.takes:
            self.got.append(data)
        return self.takes


def frame(n: int, epoch: int = 5, name: str = "chunk") -> bytes:
    return sse.frame(f"{epoch}-{n}", name, b'{"n":%d}' % n)


def message(first: int, last: int, epoch: int = 5) -> bytes:
    return b"%d %d\n" % (first, last) + b"".join(frame(n, epoch) for n in range(first, last + 1))


def opened(last: int = 0, limit: int = 10_000) -> Topic:
    topic = Topic("t", b"feed", limit)
    topic.open_at(EventId(5, last))
    return topic


def live(topic: Topic, n: int) -> tuple[Viewer, Ear]:
    ear = Ear()
    viewer = Viewer(topic, ear)
    viewer.move(EventId(5, n))
    viewer.live = True
    topic.viewers[viewer] = None
    return viewer, ear


def test_news_go_to_live_viewers_in_one_write() -> None:
    topic = opened()
    viewer, ear = live(topic, 0)
    topic.push(message(1, 2))
    topic.push(message(3, 3))
    topic.flush()
    assert ear.got == [frame(1) + frame(2) + frame(3)]
    assert (viewer.n, ear.woken) == (3, 0)


def test_a_slow_or_late_viewer_is_woken_instead() -> None:
    topic = opened()
    slow, ear = live(topic, 0)
    late, other = live(topic, 0)
    ear.takes, late.live = False, False
    topic.push(message(1, 1))
    topic.flush()
    assert (ear.got, ear.woken, slow.n) == ([], 1, 0)
    assert (other.got, other.woken) == ([], 1)
    assert topic.behind(0) == frame(1)


def test_a_hole_waits_for_the_log() -> None:
    topic = opened()
    assert not topic.push(message(3, 4))
    assert (topic.last, topic.want) == (0, 4)
    assert topic.fill([(f"5-{n}", "chunk", b'{"n":%d}' % n) for n in range(1, 5)])
    assert topic.behind(0) == b"".join(frame(n) for n in range(1, 5))


def test_an_end_that_was_not_the_end_is_left_out() -> None:
    """A dead letter replayed at once: whoever gets both in one write must not read on after a terminal event."""
    topic = opened(last=1)
    viewer, ear = live(topic, 1)
    topic.push(b"2 2\n" + frame(2, name="failed"))
    topic.push(b"3 3\n" + frame(3, name="status"))
    topic.flush()
    assert ear.got == [frame(3, name="status")]
    assert (viewer.n, topic.ended) == (3, False)
    topic.push(b"4 4\n" + frame(4, name="done"))
    topic.flush()
    assert ear.got[1:] == [frame(4, name="done")]
    assert topic.behind(1) == frame(3, name="status") + frame(4, name="done")
    assert topic.behind(0) is None


def test_what_comes_while_it_opens_is_not_lost_and_not_doubled() -> None:
    topic = Topic("t", b"feed", 10_000)
    for n in (2, 3, 4):
        topic.push(message(n, n))
    topic.open_at(EventId(5, 3))
    assert topic.behind(3) == frame(4)


def test_numbers_that_come_again_under_a_new_epoch_mean_that_redis_went_back() -> None:
    topic = opened(10)
    topic.push(message(9, 9, epoch=6))
    assert topic.gone


@pytest.mark.parametrize(
    ("data", "gone"),
    [
        (message(9, 9, epoch=5), False),  # late, or twice
        (message(8, 10, epoch=5), False),
        (message(12, 12, epoch=6), False),
        (message(3, 3, epoch=5), False),  # so old that nothing is known of it
        (message(11, 11, epoch=5), True),  # a lease that lost against this one: its numbers are given out again
        (message(12, 13, epoch=4), True),  # the clock of the other host is behind
        (message(9, 9, epoch=6), True),
        (b"9 9\n" + sse.frame("5-9", "chunk", b'{"n":0}'), True),  # one id, two events
        (message(14, 14, epoch=5), True),  # goes on from another 13
        (message(14, 14, epoch=8), True),  # goes on in a lease whose beginning is not here
        (b"14 14\n" + frame(14, 8, "status"), False),
        (message(14, 14, epoch=6), False),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else value.splitlines()[1].decode(),
)
def test_another_past_is_told_from_a_push_that_is_late(data: bytes, gone: bool) -> None:
    """G15: after a failover, whichever way the clocks differ; a push that was overtaken by the log is no such thing."""
    topic = opened(6)
    topic.push(message(7, 9))
    topic.fill([("5-10", "chunk", b'{"n":10}')])
    topic.push(b"11 11\n" + frame(11, 6, "status"))
    topic.push(message(12, 13, epoch=6))
    assert (topic.last, topic.gone) == (13, False)
    topic.push(data)
    assert topic.gone is gone


def test_the_log_tells_of_another_past_too() -> None:
    topic = opened(10)
    topic.want = 12
    topic.fill([(f"6-{n}", "chunk", b'{"n":1}') for n in range(8, 13)])
    assert topic.gone


@pytest.mark.parametrize(
    ("was", "newest", "gone"),
    [
        (EventId(5, 3), None, True),
        (EventId(5, 3), EventId(5, 2), True),
        (EventId(5, 3), EventId(6, 3), True),
        (EventId(5, 3), EventId(5, 3), False),
        (EventId(5, 3), EventId(6, 9), False),
    ],
)
def test_compare(was: EventId, newest: EventId | None, gone: bool) -> None:
    topic = opened(3)
    topic.compare(was, newest)
    assert topic.gone is gone
    assert topic.want == (9 if newest == EventId(6, 9) else 3 if not gone else 0)


def test_the_ring_is_bounded_and_says_so() -> None:
    topic = opened(limit=len(frame(1)) * 3)
    for n in range(1, 8):
        topic.push(message(n, n))
    assert topic.behind(2) is None
    assert topic.behind(5) == frame(6) + frame(7)
    assert topic.knows(EventId(5, 6))
    assert not topic.knows(EventId(4, 6))
    assert not topic.knows(EventId(5, 2))


@pytest.mark.parametrize("data", [b"", b"x", b"1\n", b"1 2\n", b"a b\nid: 5-1\n"])
def test_a_foreign_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        opened().push(data)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.randoms(use_true_random=False), st.data())
def test_any_order_and_any_loss_gives_the_same_run(sizes: list[int], random: object, data: st.DataObject) -> None:
    """Pushes are shuffled, lost and doubled; the log fills what is missing."""
    messages, n = [], 1
    for size in sizes:
        messages.append(message(n, n + size - 1))
        n += size
    topic = opened(limit=10**6)
    for one in data.draw(st.lists(st.sampled_from(messages), max_size=30)):
        topic.push(one)
    topic.want = n - 1
    topic.fill([(f"5-{at}", "chunk", b'{"n":%d}' % at) for at in range(topic.last + 1, n)])
    assert topic.behind(0) == b"".join(frame(at) for at in range(1, n))
    for start in range(n):
        assert topic.behind(start) == b"".join(frame(at) for at in range(start + 1, n))
