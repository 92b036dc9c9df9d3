"""The golden rule: text before the cut + text after it == text of a viewer that was never cut, byte for byte, ids
strictly rising, one end (G1, G2, G3). Through a real server and a real Valkey."""

from __future__ import annotations

import random
import re

import httpx
import pytest

from tests.server.author import WORDS, Author, begin, short_story
from tests.server.site import Site, View, parse, watching, whole
from tests.support.desk import Desk
from unbroken.tasks import events


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_resume_at_every_id(client: httpx.AsyncClient, desk: Desk, seed: int) -> None:
    author = await short_story(desk, random.Random(seed))
    log = await desk.log(author.task.id)
    view = View()
    for at, (event_id, name, data) in enumerate(log):
        raw = b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), name.encode(), data)
        view.take_all(raw)
        rest = View(text=view.text, last=view.last)
        got = await whole(client, author.task.id, event_id)
        rest.take_all(got)
        if at == len(log) - 1:
            assert got == b"", "204 after the end"
        else:
            assert (rest.text, rest.end, rest.last) == (author.text, "done", log[-1][0])
            assert parse(got)[0].n > at + 1
    assert view.text == author.text
    fresh = View().take_all(await whole(client, author.task.id))
    assert (fresh.text, fresh.end) == (author.text, "done")
    stored = (await client.get(f"/api/tasks/{author.task.id}/result")).content
    assert stored == author.text.encode()
    assert fresh.data["sha256"] == events.sha256(stored)
    assert fresh.data["length"] == len(author.text)


@pytest.mark.parametrize("seed", [4, 5])
async def test_a_long_log_read_from_its_text_is_exact_at_every_frame(
    client: httpx.AsyncClient, desk: Desk, seed: int
) -> None:
    """Above 500 events the replay is cut from the stored text; each of its ids is as good as one of the log."""
    dice = random.Random(seed)
    author = await begin(desk)
    for at in range(700):
        await author.write(dice.choice(WORDS) * dice.randint(1, 20))
        if at % 97 == 0:
            await author.save()
        if at % 150 == 149:
            await author.write("again ", at=max(0, len(author.text) - dice.randint(0, 20_000)))
        if at == 400:
            await author.again()
    await author.write("é" * 150_000)  # one append far larger than a frame
    await author.write("tail")
    if seed == 4:
        await author.save()

    async def check(end: str) -> None:
        raw = b""
        if end:
            raw = await whole(client, author.task.id)
        else:
            async with watching(client, author.task.id) as reading:
                raw = await reading.until(b"tail")
        frames = parse(raw)
        assert frames[0].name == "status"
        assert frames[0].n == 1
        assert all(len(frame.raw) <= 65_536 for frame in frames)
        assert len(frames) < 60
        view = View()
        for frame in frames:
            view.take(frame)
        assert (view.text, view.end) == (author.text, end)
        if end:
            middle = View()
            for frame in frames[:-1]:
                middle.take(frame)
                rest = View(text=middle.text).take_all(await whole(client, author.task.id, frame.id))
                assert (rest.text, rest.end) == (author.text, end), frame.id

    await check("")
    saved = parse(await _so_far(client, author))
    marks = [frame for frame in saved if frame.name == "checkpoint"]
    assert len(marks) == 1
    before = View()
    for frame in saved:
        if frame.name == "checkpoint":
            assert len(before.text) == frame.data["offset"]
            break
        before.take(frame)
    await author.complete()
    await check("done")


async def _so_far(client: httpx.AsyncClient, author: Author) -> bytes:
    async with watching(client, author.task.id) as reading:
        return await reading.until(b"tail")


async def test_a_cursor_that_the_log_does_not_know_gets_everything(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.write("Hello")
    await author.complete()
    other = await begin(desk)
    await other.write("foreign")
    foreign = (await desk.log(other.task.id))[-1][0]
    for cursor in (foreign, "1-1", "99999999999999-9", "1767225600000-3", "-1", "", "0-0"):
        view = View().take_all(await whole(client, author.task.id, cursor))
        assert (view.text, view.end) == ("Hello", "done"), cursor


async def test_malformed_cursors_are_400(client: httpx.AsyncClient, desk: Desk) -> None:
    task = await desk.submit()
    for cursor in ("abc", "1", "1-1-1", "01-1", "1" * 10_000, "1-1 x"):
        answer = await client.get(f"/api/tasks/{task.id}/stream", headers={"Last-Event-ID": cursor})
        assert answer.status_code == 400, cursor
        assert answer.headers["content-type"] == "application/problem+json"
        for name in ("last_event_id", "lastEventId"):
            assert (await client.get(f"/api/tasks/{task.id}/stream", params={name: cursor})).status_code == 400


async def test_the_header_wins_over_the_query(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.write("Hello")
    await author.complete()
    ids = [event_id for event_id, _, _ in await desk.log(author.task.id)]
    url = f"/api/tasks/{author.task.id}/stream"
    got = await client.get(url, params={"last_event_id": ids[2]})
    assert [frame.id for frame in parse(got.content)] == ids[3:]
    got = await client.get(url, params={"lastEventId": ids[0]}, headers={"Last-Event-ID": ids[-1]})
    assert got.status_code == 204


async def test_the_first_bytes_come_before_anybody_runs_the_task(client: httpx.AsyncClient, desk: Desk) -> None:
    task = await desk.submit()
    async with watching(client, task.id) as reading:
        raw = await reading.until(b'"state":"pending"')
        assert re.match(rb"retry: \d+\n(?!\n)", raw)
        headers = reading.response.headers
    assert headers["cache-control"] == "no-store, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["content-type"].startswith("text/event-stream")
    assert "content-encoding" not in headers


async def test_retry_is_spread(client: httpx.AsyncClient, desk: Desk) -> None:
    task = await desk.submit()
    seen = set()
    for _ in range(8):
        async with watching(client, task.id) as reading:
            await reading.more()
            seen.add(reading.raw.partition(b"\n\n")[0])
    assert len(seen) > 3


async def test_head_answers_headers_only(client: httpx.AsyncClient, desk: Desk, site: Site) -> None:
    task = await desk.submit()
    answer = await client.head(f"/api/tasks/{task.id}/stream")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert not site.services.hub.watchers
