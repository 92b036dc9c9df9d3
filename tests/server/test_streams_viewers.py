"""Viewers that leave, do not read, are old, or know no transport: none of them hurts another (G4)."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.server.author import begin, nobody_listens
from tests.server.site import Site, View, watching, whole
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.tasks import keys
from unbroken.tasks.state import State


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
    await until(lambda: nobody_listens(desk, channel), "no subscription left")
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
