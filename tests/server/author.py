"""A worker that a test commands: it writes, rewinds and saves at will."""

from __future__ import annotations

import random

from tests.support.desk import Desk
from unbroken.tasks import events
from unbroken.tasks.lease import Batch, Claimed, Event, Last
from unbroken.tasks.record import Task

WORDS = ["naïve ", "日本語", "🙂🙃", "data: x\n\n", "id: 9\nevent: done\n", "\r\n", "plain words ", "\u2028", "\0"]


class Author:
    """A worker that writes, rewinds and saves at will."""

    def __init__(self, desk: Desk, task: Task, held: Claimed) -> None:
        self.desk, self.task, self.held = desk, task, held
        self.text = ""
        self.batch = self.seq = 0

    async def write(self, text: str, *, at: int | None = None, events_: tuple[Event, ...] = ()) -> None:
        """Append, or rewind to code point `at`."""
        at = len(self.text) if at is None else at
        self.text = self.text[:at]
        start = len(self.text.encode())
        self.text += text
        self.batch += 1
        chunks = [
            Event(events.CHUNK, events.chunk(at + 4096 * i, part, 0.5)) for i, part in enumerate(events.split(text))
        ]
        raw = text.encode()
        batch = Batch(self.batch, start, raw, len(self.text), 0.5, self.batch, 100, [*chunks, *events_])
        await self.desk.holder().append(self.held.lease, batch)

    async def save(self) -> None:
        """A checkpoint."""
        self.seq += 1
        await self.desk.save(self.held.lease, {"n": 1}, seq=self.seq, offset=len(self.text))

    async def again(self) -> None:
        """The worker dies; another goes on."""
        await self.desk.holder().release(self.held.lease, self.last(), to="recovering")
        self.held = await self.desk.claim()
        self.batch = self.seq = 0

    def last(self) -> Last:
        """Nothing more than what is written."""
        return Last(len(self.text.encode()), b"", len(self.text))

    async def complete(self) -> None:
        """The end."""
        await self.desk.complete(self.held.lease, self.text)


async def begin(desk: Desk) -> Author:
    """A claimed task."""
    task = await desk.submit()
    held = await desk.claim()
    assert held.lease.task_id == task.id
    return Author(desk, task, held)


async def short_story(desk: Desk, dice: random.Random) -> Author:
    """Everything that can happen to a text, and the end."""
    author = await begin(desk)
    for _ in range(25):
        await author.write(dice.choice(WORDS))
        match dice.randrange(8):
            case 0:
                await author.save()
            case 1:
                await author.again()
            case 2:
                await author.write(dice.choice(WORDS), at=dice.randint(0, len(author.text)))
            case 3:
                progress = b'{"progress":0.5,"done":1,"total":2,"unit":"tokens"}'
                await author.write("x", events_=(Event(events.PROGRESS, progress),))
    await author.complete()
    return author


async def nobody_listens(desk: Desk, channel: str) -> bool:
    """Is there no subscription of this channel?"""
    return bool((await desk.redis.pubsub_numsub(channel))[0][1] == 0)
