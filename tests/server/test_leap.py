"""Far behind with a cursor: the rest comes from the text, exactly as the log would have told it."""

from __future__ import annotations

import random
from itertools import accumulate

import httpx
import pytest

from tests.server.site import View, parse, watching, whole
from tests.support.desk import Desk
from unbroken.server import sse
from unbroken.server.replay import Replayer
from unbroken.tasks import events
from unbroken.tasks.events import parse_id
from unbroken.tasks.lease import Batch, Claimed, Event, Last

WORDS = ["tide ", "señal ", "灯", "🌊 ", "a<b \n", "\u2028x"]


class Author:
    """Writes a long task with everything that may happen to it."""

    def __init__(self, desk: Desk, held: Claimed) -> None:
        self.desk, self.held = desk, held
        self.text, self.batch, self.saves = "", 0, 0

    async def write(self, count: int) -> None:
        """So many chunks, one append each."""
        for _ in range(count):
            await self.add(WORDS[self.batch % len(WORDS)] * 8)

    async def add(self, more: str) -> None:
        """One append."""
        self.batch += 1
        at = len(self.text.encode())
        await self.desk.write(self.held.lease, more, at=at, batch=self.batch, chars=len(self.text))
        self.text += more

    async def rewind(self, chars: int) -> None:
        """Take text back."""
        self.text = self.text[:chars]
        await self.add("")

    async def save(self) -> None:
        """A checkpoint."""
        self.saves += 1
        await self.desk.save(self.held.lease, {"n": self.saves}, seq=self.saves, offset=len(self.text))

    async def again(self) -> None:
        """Given back and claimed anew."""
        await self.desk.holder().release(self.held.lease, Last(-1), to="recovering")
        self.held, self.batch, self.saves = await self.desk.claim("w2"), 0, 0


async def written(desk: Desk) -> Author:
    """About 2,400 events over two leases."""
    await desk.submit()
    author = Author(desk, await desk.claim())
    await author.write(700)
    await author.save()
    await author.again()
    await author.write(250)
    await author.rewind(len(author.text) - 3_000)
    await author.write(10)
    await author.rewind(len(author.text) - 20)
    for _ in range(7):
        await author.write(200)
        await author.save()
    await author.write(40)
    return author


@pytest.mark.parametrize("ended", [True, False])
async def test_from_any_cursor_the_rest_is_exact(desk: Desk, client: httpx.AsyncClient, ended: bool) -> None:
    """G2: what a viewer had at its cursor, and what it is then given, make what the whole log makes."""
    author = await written(desk)
    task_id = author.held.lease.task_id
    if ended:
        await desk.complete(author.held.lease, author.text)
    else:
        await desk.store.cancel(task_id, "local", actor="local")
    entries = await desk.log(task_id)
    frames = parse(b"".join(sse.frame(*entry) for entry in entries))
    states = list(accumulate(frames, lambda text, f: folded(text, f.name, f.data), initial=""))[1:]
    assert states[-1] == author.text
    chance = random.Random(7)
    places = {*range(12), *range(len(frames) - 12, len(frames) - 1), *chance.sample(range(len(frames) - 1), 70)}
    rewinds = [i for i, f in enumerate(frames) if f.name == "chunk" and i and f.data["offset"] < len(states[i - 1])]
    places |= {place for i in rewinds for place in range(i - 3, i + 4)}
    few = 0
    for place in sorted(places):
        view = View(text=states[place], last=frames[place].id)
        raw = await whole(client, task_id, frames[place].id)
        got = parse(raw)
        assert all(frame.n > frames[place].n for frame in got)
        view.take_all(raw)
        assert view.text == author.text, f"from {frames[place]}"
        assert view.end == ("done" if ended else "cancelled")
        assert [f.data for f in got if f.name == "status"] or frames[place].n > 705, "the newest state is told"
        few += len(got) <= 8 and len(frames) - place > 500
    assert few > 20, "most of those who are far behind get a few frames"


def folded(text: str, name: str, data: dict[str, object]) -> str:
    """One event more."""
    if name != "chunk":
        return text
    offset, more = data["offset"], data["text"]
    assert isinstance(offset, int)
    assert isinstance(more, str)
    return text[:offset] + more


@pytest.mark.parametrize("how", ["paused", "recovering", "error"])
async def test_who_leaps_is_told_that_it_stopped(desk: Desk, client: httpx.AsyncClient, how: str) -> None:
    """G2: nothing else will come for a while, so whoever is not told now shows a running task, without its recover
    button, its reason and the time of the next try."""
    await desk.submit()
    author = Author(desk, await desk.claim())
    await author.write(900)
    await author.save()
    lease = author.held.lease
    if how == "error":
        await desk.fail(lease, retryable=True, delay_s=3_600, at=len(author.text.encode()))
    else:
        reason = "requested" if how == "paused" else ""
        await desk.holder().release(lease, Last(-1), to=how, reason=reason)
    entries = await desk.log(lease.task_id)
    for cursor in (None, entries[50][0], entries[300][0], entries[-3][0]):
        async with watching(client, lease.task_id, cursor) as reading:
            # the last of what comes is the newest event, exactly as it stands in the log
            raw = await reading.until(sse.frame(*entries[-1]), within=10)
        place = 0 if cursor is None else 50 if cursor == entries[50][0] else None
        assert place is None or len(parse(raw)) <= 8, "in a few frames"


async def test_who_is_far_behind_gets_the_newest_counts(desk: Desk, client: httpx.AsyncClient) -> None:
    """Only superseded ones may be left out: here the newest counts lie between texts, and behind the checkpoint."""
    await desk.submit()
    author = Author(desk, await desk.claim())
    await author.write(600)
    await author.save()
    await author.write(50)
    counts = {"progress": 0.7, "done": 700, "total": 1_000, "unit": "tokens"}
    event = Event(events.PROGRESS, events.encode(counts))
    author.batch += 1
    at = len(author.text.encode())
    lease = author.held.lease
    await desk.holder().append(lease, Batch(author.batch, at, b"", len(author.text), 0.7, 700, 1_000, [event]))
    await author.write(50)
    await desk.complete(lease, author.text)
    entries = await desk.log(lease.task_id)
    for cursor in (None, entries[50][0]):
        frames = parse(await whole(client, lease.task_id, cursor))
        assert [frame.data for frame in frames if frame.name == "progress"] == [counts]
        assert len(frames) <= 8


async def test_pages_end_at_round_numbers(desk: Desk) -> None:
    """Viewers of different cursors share what follows their first page."""
    author = await written(desk)
    task_id = author.held.lease.task_id
    entries = await desk.log(task_id)
    replayer = Replayer(desk.store)
    for place in (100, 350):  # before the second lease: the log itself is read
        page = await replayer.after(task_id, parse_id(entries[place][0]), len(entries))
        assert page is not None
        assert page.at.n == 1_000
