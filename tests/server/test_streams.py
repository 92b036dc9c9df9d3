"""The golden rule: text before the cut + text after it == text of a viewer that was never cut, byte for byte, ids
strictly rising, one end (G1, G2, G3). Through a real server and a real Valkey."""

from __future__ import annotations

import asyncio
import random
import re

import httpx
import pytest

from tests.server.site import Site, View, parse, watching, whole
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.server.hub import CHECK_S
from unbroken.tasks import events, keys
from unbroken.tasks.lease import Batch, Claimed, Event, Last
from unbroken.tasks.record import Task
from unbroken.tasks.state import State

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
        assert re.match(rb"retry: \d+\n\n", raw)
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


async def test_live_never_overtakes_the_past(client: httpx.AsyncClient, desk: Desk) -> None:
    """A writer at full speed while viewers join at random places and with random cursors."""
    author = await begin(desk)
    dice = random.Random(7)
    known = [""]
    stop = asyncio.Event()

    async def writer() -> None:
        for at in range(1_500):
            await author.write(f"{at} ")
            if at % 40 == 0:
                known.append((await desk.store.get(author.task.id, None)).last_event_id)
                texts[known[-1]] = author.text
            if stop.is_set():
                break
        await author.complete()

    texts = {"": ""}

    async def viewer() -> None:
        await asyncio.sleep(dice.random() * 1.5)
        cursor = dice.choice(known)
        view = View(text=texts[cursor]).take_all(await whole(client, author.task.id, cursor or None))
        assert (view.text, view.end) == (author.text, "done")

    await asyncio.gather(writer(), *(viewer() for _ in range(40)))


async def test_a_push_that_is_lost_costs_a_moment_and_no_event(
    client: httpx.AsyncClient, desk: Desk, site: Site
) -> None:
    """The feed is killed again and again while the task runs, the last time right before the end."""
    author = await begin(desk)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        reading = group.create_task(whole(client, author.task.id))
        await until(lambda: site.services.hub.topics, "the viewer to be there")
        for at in range(200):
            await author.write(f"{at} ")
            if at % 20 == 0:
                await desk.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await desk.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await author.complete()
    view = View().take_all(reading.result())
    assert (view.text, view.end) == (author.text, "done")


async def test_a_lost_message_is_found_by_the_check(client: httpx.AsyncClient, desk: Desk, site: Site) -> None:
    """Redis drops a message and says nothing: only the comparison with the record can tell."""
    author = await begin(desk)
    await author.write("seen ")
    async with watching(client, author.task.id) as reading:
        await reading.until(b"seen")
        channel = keys.key("feed", author.task.id)
        site.services.hub.feed.unsubscribe(channel.encode())
        await until(lambda: _nobody(desk, channel), "the subscription to be gone")
        await author.write("unseen")
        await author.complete()
        raw = await reading.rest(within=CHECK_S * 4)
    view = View().take_all(raw)
    assert (view.text, view.end) == ("seen unseen", "done")


async def _nobody(desk: Desk, channel: str) -> bool:
    return bool((await desk.redis.pubsub_numsub(channel))[0][1] == 0)


async def test_a_malformed_push_does_no_harm(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    async with watching(client, author.task.id) as reading:
        await reading.until(b"processing")
        for bad in (b"", b"x", b"9 9\nnonsense", b"1 99999\nid: 1-1\n"):
            await desk.redis.publish(keys.key("feed", author.task.id), bad)
        await author.write("fine")
        await reading.until(b"fine")


async def test_foreign_entries_in_the_log_are_passed_over(client: httpx.AsyncClient, desk: Desk) -> None:
    for words in (3, 600):
        author = await begin(desk)
        for at in range(words):
            await author.write(f"{at} ")
        await author.complete()
        last = (await desk.store.get(author.task.id, None)).last_event_id
        await desk.redis.xadd(keys.key("ev", author.task.id), {"foo": "bar"}, id=last + "0")
        await desk.redis.xadd(keys.key("ev", author.task.id), {"e": "x\ny", "d": "\n"}, id=last + "1")
        view = View().take_all(await whole(client, author.task.id))
        assert (view.text, view.end) == (author.text, "done")


async def test_the_log_is_gone_under_a_viewer(client: httpx.AsyncClient, desk: Desk) -> None:
    """The stream ends instead of waiting for ever; asked again, the answer is the whole state or its end."""
    author = await begin(desk)
    await author.write("abc")
    async with watching(client, author.task.id) as reading:
        await reading.until(b"abc")
        await desk.store.cancel(author.task.id, "local", actor="a")
        await reading.rest()
    other = await begin(desk)
    async with watching(client, other.task.id) as reading:
        await reading.until(b"processing")
        await desk.redis.delete(keys.key("task", other.task.id), keys.key("ev", other.task.id))
        await reading.rest(within=CHECK_S * 4)
    assert (await client.get(f"/api/tasks/{other.task.id}/stream")).status_code == 404


async def test_many_connects_and_aborts_leave_nothing(client: httpx.AsyncClient, desk: Desk, site: Site) -> None:
    tasks = [await desk.submit() for _ in range(5)]

    async def touch(at: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        path = f"/api/tasks/{tasks[at % 5].id}/stream"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if at % 3:
            await reader.read(at % 7 * 40 + 1)
        writer.transport.abort()

    for at in range(0, 500, 50):
        await asyncio.gather(*(touch(at + i) for i in range(50)))
    hub = site.services.hub
    await until(lambda: not hub.watchers and not hub.topics, "all viewers and topics to be gone")
    await until(lambda: not site.services.streams.open, "all counts to be zero")
    channel = keys.key("feed", tasks[0].id)
    await until(lambda: _nobody(desk, channel), "no subscription left")
    assert (await client.get("/readyz")).status_code == 200


async def test_a_viewer_that_does_not_read_hurts_nobody(client: httpx.AsyncClient, desk: Desk, site: Site) -> None:
    """G4: it costs bounded memory, and catches up exactly from the log."""
    author = await begin(desk)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1024)
    path = f"/api/tasks/{author.task.id}/stream"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    async with watching(client, author.task.id) as quick:
        await quick.until(b"processing")
        for at in range(300):
            await author.write(f"{at} " * 2_000)
            if at % 50 == 49:
                await quick.until(b"%d %d " % (at, at))
        topic = next(iter(site.services.hub.topics.values()))
        assert sum(len(frames) for _, _, frames in topic.ring) <= 2 * site.services.settings.viewer_buffer
        await author.complete()
        assert View().take_all(await quick.rest()).text == author.text
    raw = b""
    while size := int(await reader.readline(), 16):
        raw += await reader.readexactly(size)
        await reader.readline()
    writer.close()
    view = View().take_all(raw)
    assert (view.text, view.end) == (author.text, "done")


async def test_an_old_http_client_works_too(desk: Desk, site: Site) -> None:
    author = await begin(desk)
    await author.write("Hello")
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"GET /api/tasks/{author.task.id}/stream HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"Hello")
    await author.write(" world")
    await author.complete()
    rest = await asyncio.wait_for(reader.read(), 20)
    assert b" world" in rest
    assert b"event: done" in rest
    writer.close()


async def test_a_dead_letter_that_lives_again(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.write("abc")
    await desk.fail(author.held.lease, retryable=False, at=3)
    view = View().take_all(await whole(client, author.task.id))
    assert (view.text, view.end) == ("abc", "failed")
    assert await whole(client, author.task.id, view.last) == b""
    await desk.store.replay(author.task.id, "local", actor="a")
    async with watching(client, author.task.id, view.last) as reading:
        await reading.until(b"recovering")
        author.held, author.batch = await desk.claim(), 0
        await author.write("def")
        await author.complete()
        view.take_all(await reading.rest())
    assert (view.text, view.end) == ("abcdef", "done")
    fresh = View().take_all(await whole(client, author.task.id))
    assert (fresh.text, fresh.end) == ("abcdef", "done")
    assert (await desk.store.get(author.task.id, None)).state is State.COMPLETED


async def test_everything_works_without_the_transport_too(
    client: httpx.AsyncClient, desk: Desk, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the server below is not the uvicorn that we know, all goes through ASGI; leaving is noticed as well."""
    monkeypatch.setattr("unbroken.server.stream.direct", lambda scope: None)
    author = await begin(desk)
    async with watching(client, author.task.id) as reading:
        for at in range(50):
            await author.write(f"{at} ")
        await reading.until(b"49 ")
        async with watching(client, author.task.id) as other:
            await other.until(b"49 ")
        await until(lambda: len(site.services.hub.watchers) == 1, "the other viewer to be gone")
        await author.complete()
        view = View().take_all(await reading.rest())
    assert (view.text, view.end) == (author.text, "done")


async def test_a_client_that_takes_nothing_is_dropped(desk: Desk, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half open: the socket stands, and nobody reads. The send timeout ends it, and what waited is freed."""
    monkeypatch.setattr("unbroken.server.stream.SEND_S", 0.5)
    author = await begin(desk)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1024)
    path = f"/api/tasks/{author.task.id}/stream"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    for at in range(400):
        await author.write(f"{at} " * 8_000)
        if not site.services.hub.watchers:
            break
    await until(lambda: not site.services.hub.watchers, "the silent client to be dropped")
    writer.transport.abort()
