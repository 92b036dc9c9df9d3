"""What is written while somebody watches: nothing overtakes, what a push loses is found, strange data does no harm."""

from __future__ import annotations

import asyncio
import random

import httpx

from tests.server.author import begin, nobody_listens
from tests.server.site import Site, View, watching, whole
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.server.hub import CHECK_S
from unbroken.tasks import keys


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
        await until(lambda: nobody_listens(desk, channel), "the subscription to be gone")
        await author.write("unseen")
        await author.complete()
        raw = await reading.rest(within=CHECK_S * 4)
    view = View().take_all(raw)
    assert (view.text, view.end) == ("seen unseen", "done")


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
