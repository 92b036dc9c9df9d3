"""Whole lives of tasks at random, written to a real log: everything that a worker, an owner and the reaper may do."""

from __future__ import annotations

import random

from tests.support.desk import OWNER, Desk
from unbroken.tasks import events
from unbroken.tasks.lease import Batch, Claimed, Event, Last
from unbroken.tasks.state import State

WORDS = ["tide ", "señal ", "灯", "🌊 ", "a<b \n", "\u2028x", "id: 9\nevent: done\n", "lighthouse keeper " * 9]
ERROR = b'{"code":"x","message":"y","retryable":false}'


class History:
    """One task; every step is one that can really happen to it. big: how often an append is larger than a frame."""

    def __init__(self, desk: Desk, dice: random.Random, *, items: bool, big: float) -> None:
        self.desk, self.dice, self.big = desk, dice, big
        self.items = 0 if items else -1
        self.text, self.task_id = "", ""
        self.held: Claimed | None = None
        self.batch = self.saves = self.done = 0

    async def begin(self) -> None:
        """Submitted and claimed."""
        recovery = self.dice.choice(["auto", "manual"])
        self.task_id = (await self.desk.submit(max_attempts=10**6, max_crashes=10**6, recovery=recovery)).id
        await self.claim()

    async def claim(self) -> None:
        """Whatever it waits for is there: a recover click, a replay, the time of its next try, a worker."""
        store, state = self.desk.store, await self.state()
        if state is State.PAUSED:
            await store.recover(self.task_id, OWNER, actor=OWNER, recovery_id=f"r{self.dice.random()}")
        elif state is State.FAILED:
            await store.replay(self.task_id, OWNER, actor=OWNER)
        elif state is State.RECOVERING:
            await self.desk.tick(5_000)
        self.held, self.batch, self.saves = await self.desk.claim(), 0, 0

    async def state(self) -> State:
        """Where it is."""
        return (await self.desk.store.get(self.task_id, None)).state

    async def live(self, until: int) -> None:
        """Random steps until the log has so many events."""
        while (await self.desk.store.get(self.task_id, None)).num("n") < until:
            if self.held is None:
                await self.claim()
            await self.work(self.dice.choices(["write", "rewind", "save", "item", "stop"], [20, 1, 5, 5, 1])[0])

    async def work(self, what: str) -> None:
        """One step of a worker."""
        match what:
            case "write":
                await self.write(len(self.text), "chunk" * self.dice.randint(1, 9))
            case "rewind":
                share = self.dice.choice([0.0, 0.5, 0.99, 1.0])
                await self.write(int(len(self.text) * share), self.dice.choice(["", "again "]))
            case "save":
                if self.dice.random() < 0.7:
                    await self.write(len(self.text), "", counts=True)
                assert self.held is not None
                self.saves += 1
                await self.desk.save(self.held.lease, {"n": 1}, seq=self.saves, offset=len(self.text))
            case "item" if self.items >= 0:
                data = events.encode({"index": self.items, "ok": True, "result": "a"})
                assert self.held is not None
                await self.desk.holder().item(self.held.lease, self.items, data, 10**6)
                self.items += 1
            case "stop":
                await self.stop(self.dice.choice(["pause", "release", "lost", "error", "failed"]))

    async def write(self, at: int, words: str, *, counts: bool = False) -> None:
        """One append of some chunks, from `at` on, with counts before, after or among them."""
        start, self.text = len(self.text[:at].encode()), self.text[:at]
        begun, found = len(self.text), []
        pieces = [self.dice.choice(WORDS) for _ in range(len(words) // 5)] or [words] * (words != "" or not counts)
        if pieces and self.dice.random() < self.big:
            pieces[0] = "🌊" * 4_096
            pieces *= 2
        for piece in pieces:
            found.append(Event(events.CHUNK, events.chunk(len(self.text), piece, 0.5)))
            self.text += piece
        self.batch += 1
        if counts or self.dice.random() < 0.1:
            self.done += 1
            data = events.encode({"progress": 0.5, "done": self.done, "total": 10**6, "unit": "tokens"})
            found.insert(self.dice.randint(0, len(found)), Event(events.PROGRESS, data))
        raw = self.text[begun:].encode()
        assert self.held is not None
        await self.desk.holder().append(
            self.held.lease, Batch(self.batch, start, raw, len(self.text), 0.5, self.done, 10**6, found)
        )

    async def stop(self, how: str) -> None:
        """The lease ends, one way or another, sometimes with a click or two behind it."""
        assert self.held is not None
        lease, desk, self.held = self.held.lease, self.desk, None
        match how:
            case "pause":
                await desk.holder().release(lease, self.last(), to="paused", reason="requested")
            case "release":
                await desk.holder().release(lease, self.last(), to="recovering")
            case "lost":
                await desk.tick(desk.settings.lease_ms * 3)
                await desk.store.reap(limit=1)
                assert await self.state() is not State.PROCESSING
            case _:
                retry = how == "error"
                await desk.holder().fail(
                    lease, self.last(), retryable=retry, delay_s=5, error=ERROR, detail="", group="g"
                )
        for _ in range(self.dice.choice([0, 0, 0, 1, 2])):
            if await self.state() is State.PAUSED:
                await desk.store.recover(self.task_id, OWNER, actor=OWNER, recovery_id=f"r{self.dice.random()}")
            elif await self.state() is State.RECOVERING:
                await desk.store.pause(self.task_id, OWNER, actor=OWNER)

    async def end(self, how: str) -> None:
        """How it stands when people look at it; "" leaves it as it is."""
        if how == "completed":
            if self.held is None:
                await self.claim()
            assert self.held is not None
            await self.desk.complete(self.held.lease, self.text)
        elif how == "claimed":
            if self.held is not None:
                await self.stop("release")
            await self.claim()
        elif how == "cancelled" and await self.state() is not State.FAILED:
            await self.desk.store.cancel(self.task_id, OWNER, actor=OWNER)
        elif how and self.held is not None:
            await self.stop(how)

    def last(self) -> Last:
        """Nothing more than what is written."""
        return Last(len(self.text.encode()), b"", len(self.text))
