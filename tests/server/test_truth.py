"""G2, G3: whoever comes, whenever and with whatever cursor, ends where somebody stands who saw every event.

Lives of tasks at random, on small pages and on those of the product; viewers without a cursor, with that of any event,
and with one that the log does not know; and each of them leaves in the middle of its answer and comes back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis.asyncio import Redis

from tests.server.histories import History
from tests.server.site import Frame, parse
from tests.support.desk import Desk
from unbroken.server import replay, sse
from unbroken.server.replay import Replayer
from unbroken.tasks.events import TERMINAL_EVENTS, parse_id
from unbroken.tasks.settings import Settings

ENDS = ["completed", "cancelled", "failed", "pause", "release", "lost", "error", "claimed", ""]


@dataclass
class Seen:
    """All that a viewer knows (section 5). `said`: the newest data of each kind of event that replaces."""

    text: str = ""
    items: dict[int, Any] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)
    end: str = ""

    def take(self, frames: Sequence[Frame]) -> Seen:
        """Apply events."""
        for frame in frames:
            match frame.name:
                case "chunk":
                    assert frame.data["offset"] <= len(self.text), f"{frame} lies beyond {len(self.text)}"
                    self.text = self.text[: frame.data["offset"]] + frame.data["text"]
                case "item":
                    self.items[frame.data["index"]] = frame.data
                case "status" | "progress" | "checkpoint":
                    self.said[frame.name] = frame.data
                    self.end = "" if frame.name == "status" else self.end  # a dead letter that lives again
                case _:
                    self.end = frame.name
        return self

    def copy(self) -> Seen:
        """Another who knows the same."""
        return Seen(self.text, dict(self.items), dict(self.said), self.end)


class Truth:
    """What the log says, event by event."""

    def __init__(self, entries: list[tuple[str, str, bytes]]) -> None:
        self.frames = parse(b"".join(sse.frame(*entry) for entry in entries))
        self.by_id = {frame.id: frame for frame in self.frames}
        self.all, self.texts = Seen(), dict[str, tuple[int, int]]()
        for frame in self.frames:
            text = self.all.take([frame]).text
            self.texts[frame.id] = len(text), hash(text)

    def upto(self, place: int) -> Seen:
        """What is known after the event at `place`."""
        return Seen().take(self.frames[: place + 1])

    def check(self, seen: Seen) -> None:
        """Nothing is missing and nothing is made up."""
        assert seen.text == self.all.text
        assert seen.items == self.all.items
        assert seen.end == self.all.end
        for name in ("progress", "checkpoint") if seen.end else ("status", "progress", "checkpoint"):
            assert seen.said.get(name) == self.all.said.get(name), f"the newest {name}"

    def check_each(self, seen: Seen, frames: list[Frame]) -> None:
        """Whoever leaves after any of these frames holds exactly the text of that id."""
        for frame in frames:
            text = seen.take([frame]).text
            assert (len(text), hash(text)) == self.texts[frame.id], f"the text at {frame}"

    def check_frames(self, frames: list[Frame], cursor: str | None, known: bool) -> None:
        """Each frame bears an id of the log; what is no text is the event of its id, but for the state at the start."""
        lead = 0 if known else 1 + frames[0].id.endswith("-0")
        for at, frame in enumerate(frames):
            if at < lead and (frame.name == "status" or frame.id.endswith("-0")):
                continue
            own = self.by_id[frame.id]
            assert frame.name == "chunk" or (frame.name, frame.data) == (own.name, own.data)
            assert not known or cursor is None or parse_id(frame.id) > parse_id(cursor)
        ends = [frame for frame in frames if frame.name in TERMINAL_EVENTS]
        assert ends == ([frames[-1]] if self.all.end and frames else []), "an end where it has ended, and only there"


async def told(replayer: Replayer, task_id: str, cursor: str | None, n: int) -> list[Frame]:
    """All that a viewer with this cursor is given, as a stream gives it when the ring holds nothing."""
    page = await replayer.after(task_id, parse_id(cursor), n) if cursor else None
    if page is None:
        page = await replayer.start(task_id, n, again=cursor is not None)
    raw = b""
    while True:
        assert page is not None
        raw += b"".join(page.writes)
        assert page.ended or page.at.n <= n
        if page.ended or page.at.n == n:
            return parse(raw)
        page = await replayer.after(task_id, page.at, n)


async def everybody(desk: Desk, history: History, dice: random.Random, viewers: int) -> None:
    """Every kind of viewer of a task as it stands."""
    truth = Truth(await desk.log(history.task_id))
    assert truth.all.text == history.text
    frames, replayer = truth.frames, Replayer(desk.store)
    n = len(frames)
    turns = [at for at, frame in enumerate(frames[:-1]) if frame.name in TERMINAL_EVENTS or frame.name == "status"]
    places = {0, n - 2, *dice.sample(turns, min(len(turns), viewers // 3)), *dice.sample(range(n - 1), viewers)}
    cursors: list[tuple[str | None, Seen]] = [(None, Seen()), ("5-5", Seen("another past, and a long one " * n))]
    cursors += [(frames[place].id, truth.upto(place)) for place in sorted(places)]
    for cursor, seen in cursors:
        known = cursor in truth.by_id
        got = await told(replayer, history.task_id, cursor, n)
        truth.check_frames(got, cursor, known)
        truth.check(seen.copy().take(got))
        if known or cursor is None:
            truth.check_each(seen.copy(), got)
        left = dice.randrange(len(got))
        again = await told(replayer, history.task_id, got[left].id, n) if left < len(got) - 1 else []
        truth.check(seen.take(got[: left + 1] if again else got).take(again))


@pytest.fixture
async def moved(redis: Redis, settings: Settings) -> Desk:
    """A desk whose clock stands still until it is told, so that workers can be lost at once."""
    desk = Desk(redis, settings, clock="ub:{s0}:clock")
    await desk.set_time(1_767_225_600_000)
    return desk


@pytest.mark.parametrize("seed", range(18))
async def test_small_pages(moved: Desk, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Pages of 50 events, and the text from 25 on: many boundaries, and everything meets them."""
    monkeypatch.setattr(replay, "PAGE", 50)
    monkeypatch.setattr(replay, "LONG", 25)
    dice = random.Random(seed)
    history = History(moved, dice, items=seed % 4 == 3, big=0.02)
    await history.begin()
    await history.live(dice.randint(60, 200))
    if seed % 3 == 0:  # text was taken back and grew again, and little was said since
        if history.held is None:
            await history.claim()
        await history.write(len(history.text) * 9 // 10, "again" * 9)
        for _ in range(4):
            await history.write(len(history.text), "chunk" * 9)
    await history.end(ENDS[seed % len(ENDS)])
    await everybody(moved, history, dice, viewers=18)


@pytest.mark.parametrize("how", ["completed", "pause", "error"])
async def test_long_lives(moved: Desk, how: str) -> None:
    """More than 1,000 events, and the product's own sizes."""
    dice = random.Random(how)
    history = History(moved, dice, items=how == "error", big=0.0)
    await history.begin()
    await history.live(1_100)
    for _ in range(120):
        if history.held is None:
            await history.claim()
        await history.write(len(history.text), "chunk" * 5)
    await history.work("save")
    await history.end(how)
    await everybody(moved, history, dice, viewers=10)
    n = len(await moved.log(history.task_id))
    assert n > 1_500
    few = len(await told(Replayer(moved.store), history.task_id, None, n))
    assert few < 20 or how == "error", "a late viewer gets a handful of frames; one of items all of these"
