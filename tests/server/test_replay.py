"""The past as a viewer gets it where something is special: an end that was none, and a past that is gone."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.server.author import Author, begin
from tests.server.site import View, parse, whole
from tests.support.desk import OWNER, Desk
from unbroken.server import replay
from unbroken.server.many import mark
from unbroken.server.replay import Replayer
from unbroken.server.shared import Shared
from unbroken.tasks.events import parse_id


async def replayed(desk: Desk, at: int) -> Author:
    """A dead letter that lived again and was completed: its `failed` is event number `at`."""
    author = await begin(desk)
    for _ in range(at - 3):
        await author.write("x")
    await desk.fail(author.held.lease, retryable=False, at=len(author.text))
    assert (await desk.log(author.task.id))[at - 1][1:2] == ("failed",)
    await desk.store.replay(author.task.id, OWNER, actor=OWNER)
    author.held, author.batch = await desk.claim(), 0
    await author.write("y")
    await author.complete()
    return author


@pytest.mark.parametrize("at", [49, 50, 51])
async def test_an_end_that_was_none_at_the_end_of_a_page(
    desk: Desk, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """G3: told in the middle, the page and the command line stop there, and the task is completed."""
    monkeypatch.setattr(replay, "PAGE", 50)
    author = await replayed(desk, at)
    for cursor in (None, (await desk.log(author.task.id))[20][0]):
        frames = parse(await whole(client, author.task.id, cursor))
        assert [frame.name for frame in frames if frame.name in ("failed", "done")] == ["done"]
        assert frames[-1].name == "done"


async def test_who_comes_after_a_replay_gets_no_read_from_before_it() -> None:
    """A read under way is shared only with those whom its answer serves; for all others one more is enough."""
    shared: Shared[int] = Shared()
    go, answers = asyncio.Event(), iter([1, 2, 3])

    async def read() -> int:
        answer = next(answers)
        await go.wait()
        return answer

    first = asyncio.create_task(shared.get("page", read, lambda _: True))
    await asyncio.sleep(0)
    later = [asyncio.create_task(shared.get("page", read, lambda answer: answer >= 2)) for _ in range(5)]
    same = asyncio.create_task(shared.get("page", read, lambda answer: answer == 1))
    await asyncio.sleep(0)
    go.set()
    assert await first == await same == 1
    assert [await one for one in later] == [2] * 5
    assert shared.reads == 2


async def test_an_answer_that_serves_nobody_is_read_twice_at_most() -> None:
    """A log that is gone: each reader gets an answer, and a crowd causes no crowd of reads."""
    shared: Shared[None] = Shared()

    async def read() -> None:
        await asyncio.sleep(0)

    assert await asyncio.gather(*(shared.get("page", read, lambda _: False) for _ in range(20))) == [None] * 20
    assert shared.reads == 2


@pytest.mark.parametrize("claimed", [True, False])
async def test_a_past_that_is_gone_is_taken_back(desk: Desk, client: httpx.AsyncClient, claimed: bool) -> None:
    """G2: Redis has lost all that this viewer holds, and no text came since; it must not end with what is not there."""
    task = await desk.submit()
    if claimed:
        await desk.claim()
    await desk.store.cancel(task.id, OWNER, actor=OWNER)
    view = View(text="text of another past").take_all(await whole(client, task.id, "1767225600000-70"))
    assert (view.text, view.end) == ("", "cancelled")
    many = {"task": task.id, "last_event_id": f"{mark(task.id)}:1767225600000-70"}
    answer = await client.get("/api/stream", params=many)
    assert b'"offset":0,"text":""' in answer.content
    fresh = parse(await whole(client, task.id))
    assert [frame.name for frame in fresh] == ["status", "cancelled"], "for others there is nothing to take back"
    again = await Replayer(desk.store).after(task.id, parse_id(f"{fresh[0].id.split('-')[0]}-0"), 3)
    assert again is None, "its id is no event's: who comes back with it begins anew"
