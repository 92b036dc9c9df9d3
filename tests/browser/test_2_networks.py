"""Networks and proxies as they really go away: for ten seconds, again and again, without a word. One evening, in which
all of it happens at once on tabs of their own, so that its real seconds are waited for only once."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, expect

from tests.browser import pages
from tests.browser.conftest import RETRY_MS, Site
from tests.deploy.nginx import Nginx
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import Stack
from tests.support.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="session")

OFF_S = 10.0  # the one place where real time is what is tried
RECYCLE_S, RECYCLED_S = 2.0, 18.0
TOKENS = 540
RATE = 30  # a task of 18 s: it goes on behind the break
FAST = 10_000  # tokens, one event each, 500 a second
ALONE = "delete globalThis.SharedWorker"  # what a browser emulates, and what a page can be asked, stops at workers


@dataclass
class Seen:
    """What a tab showed in its bad time, and afterwards."""

    before: int = 0  # characters when the network went
    during: int = 0  # the most while it was away
    pill: str = ""  # at the end of that time
    away_s: float = 0
    story: str = ""
    exact: bool = False
    requests: list[str] = field(default_factory=list)
    later: int = 0
    cuts: int = 0
    reconnects: int = 0
    events: int = 0


@dataclass
class Evening:
    """Everything that happened."""

    offline: Seen
    frozen: Seen
    stopped: Seen
    swallowed: Seen
    recycled: Seen
    ended: Seen


@dataclass
class Place:
    """What all of it shares. ready: nothing begins before every tab is there, so that a busy machine takes its time
    before, not from what is tried."""

    browser: Browser
    stack: Stack
    ready: asyncio.Barrier
    over: asyncio.Event

    @asynccontextmanager
    async def tab(self, url: str, script: str = "") -> AsyncIterator[Page]:
        """A tab of its own profile, with the page in it."""
        context = await self.browser.new_context(base_url=url, reduced_motion="reduce")
        context.set_default_timeout(pages.WAIT_MS)
        if script:
            await context.add_init_script(script)
        try:
            page = await context.new_page()
            await page.goto("/#/new")
            await expect(page.locator("h1")).to_be_visible()
            await self.ready.wait()
            yield page
        finally:
            await context.close()


async def begin(page: Page, stack: Stack, tokens: int = TOKENS, rate: int = RATE) -> str:
    """A new task in this tab; returns its id."""
    task_id: str = (await stack.api.submit(scripted(tokens=tokens, rate=rate)))["task_id"]
    await page.goto(pages.address(task_id))
    return task_id


async def away(
    page: Page, seen: Seen, leave: Callable[[], Awaitable[object]], come: Callable[[], Awaitable[object]]
) -> None:
    """Ten seconds without a network."""
    await pages.until_longer(page, 50)
    await leave()
    began = time.monotonic()
    seen.before = await length(page)
    await asyncio.sleep(OFF_S)
    seen.during, seen.pill = await length(page), await pages.pill(page).inner_text()
    seen.away_s = time.monotonic() - began
    await come()
    await pages.until_longer(page, seen.during)
    await pages.until_exact(page, story(tokens=TOKENS))
    seen.exact = True
    await expect(page.locator(".story")).to_contain_text("Completed")
    seen.story = await page.locator(".story").inner_text()


async def length(page: Page) -> int:
    """Of what is shown."""
    return len(await page.locator(".text").text_content() or "")


async def offline(place: Place, nginx: Nginx) -> Seen:
    """The browser's own switch, and the line is dead; everything behind nginx goes on."""
    seen = Seen()
    async with Proxy(nginx.url.removeprefix("http://")) as line, place.tab(line.url, ALONE) as page:
        await begin(page, place.stack)

        async def leave() -> None:
            await page.context.set_offline(True)
            line.refusing = True
            line.cut()  # the switch alone leaves open connections open

        async def come() -> None:
            line.refusing = False
            await page.context.set_offline(False)

        await away(page, seen, leave, come)
    return seen


async def frozen(place: Place, nginx: Nginx) -> Seen:
    """nginx stands still: nothing is closed, nothing is answered."""
    seen = Seen()

    async def tell(number: signal.Signals) -> None:
        assert nginx.process is not None
        for pid in (nginx.process.pid, *nginx.workers()):
            os.kill(pid, number)

    async with place.tab(nginx.url) as page:
        await begin(page, place.stack)
        await away(page, seen, lambda: tell(signal.SIGSTOP), lambda: tell(signal.SIGCONT))
    return seen


async def stopped(place: Place, nginx: Nginx) -> Seen:
    """nginx is not there: connections are reset and refused."""
    seen = Seen()
    async with place.tab(nginx.url) as page:
        await begin(page, place.stack)
        await away(page, seen, lambda: asyncio.to_thread(nginx.stop), lambda: asyncio.to_thread(nginx.start))
    return seen


async def swallowed(place: Place) -> Seen:
    """Every packet is lost, as in a tunnel; the device only says that it is offline."""
    seen = Seen()
    async with Proxy(place.stack.url.removeprefix("http://")) as line, place.tab(line.url) as page:
        await begin(page, place.stack)

        async def leave() -> None:
            line.hold()
            await page.evaluate("dispatchEvent(new Event('offline'))")

        async def come() -> None:
            line.release()
            await page.evaluate("dispatchEvent(new Event('online'))")

        await away(page, seen, leave, come)
    return seen


async def recycled(place: Place) -> Seen:
    """A proxy that cuts every connection every two seconds, and a task that writes 500 events a second."""
    seen = Seen()
    async with QuickStack(flush_ms=1, retry_ms=100) as stack, Proxy(stack.url.removeprefix("http://")) as line:
        async with place.tab(line.url) as page:
            task_id = await begin(page, stack, FAST, 500)
            await pages.until_longer(page, 0)
            began = time.monotonic()
            while time.monotonic() - began < RECYCLED_S:
                await asyncio.sleep(RECYCLE_S)
                line.cut()
            await pages.until_exact(page, story(tokens=FAST))
            seen.exact, seen.cuts = True, line.cuts
            seen.reconnects = int(re.sub(r"\D.*", "", await page.locator(".connection .count").inner_text()) or 0)
        seen.events = int((await stack.api.task(task_id))["last_event_id"].rpartition("-")[2])
    return seen


async def ended(place: Place) -> Seen:
    """Who watched to the end asks no more: the page not at all, EventSource once."""
    seen = Seen()

    def hear(request: Request) -> None:
        if "/stream" in request.url:
            seen.requests.append("the page's" if "/api/stream?" in request.url else "its own")

    async with place.tab(place.stack.url, ALONE) as page:
        page.on("request", hear)
        task_id = await begin(page, place.stack, 90)
        await page.evaluate("(id) => { globalThis.source = new EventSource(`/api/tasks/${id}/stream`) }", task_id)
        await pages.until_exact(page, story(tokens=90))
        await page.wait_for_function("() => source.readyState === EventSource.CLOSED")
        before = len(seen.requests)
        await place.over.wait()
        await page.wait_for_timeout(4 * RETRY_MS)
        seen.later = len(seen.requests) - before
    return seen


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def evening(browser: Browser, site: Site) -> AsyncIterator[Evening]:
    """All at once."""
    place = Place(browser, site.stack, asyncio.Barrier(6), asyncio.Event())
    ports = [int(url.rpartition(":")[2]) for url in site.stack.urls]
    await site.stack.start_worker()
    with Nginx(ports) as first, Nginx(ports) as second, Nginx(ports) as third:
        async with asyncio.TaskGroup() as group:
            last = group.create_task(ended(place))
            scenes = (
                offline(place, first),
                frozen(place, second),
                stopped(place, third),
                swallowed(place),
                recycled(place),
            )
            found = await asyncio.gather(*(group.create_task(scene) for scene in scenes))
            place.over.set()
    yield Evening(*[*found, last.result()])
    await site.repair()


async def test_ten_seconds_offline(evening: Evening) -> None:
    seen = evening.offline
    assert seen.away_s >= OFF_S
    assert seen.during - seen.before < 100, "what had arrived may still be shown"
    assert seen.pill.startswith("Offline, trying again")
    assert "because the network went away" in seen.story
    assert seen.exact


async def test_nginx_stands_still_for_ten_seconds(evening: Evening) -> None:
    seen = evening.frozen
    assert seen.away_s >= OFF_S
    assert seen.during - seen.before < 100, "what was on its way may still come"
    assert seen.exact


async def test_nginx_is_away_for_ten_seconds(evening: Evening) -> None:
    seen = evening.stopped
    assert seen.during - seen.before < 100
    assert seen.pill.startswith("Reconnecting")
    assert "You reconnected" in seen.story
    assert seen.exact


async def test_a_network_that_swallows_everything_is_noticed(evening: Evening) -> None:
    seen = evening.swallowed
    assert seen.pill.startswith("Reconnecting"), "although nobody closed anything"
    assert "because nothing was heard" in seen.story
    assert seen.exact


async def test_a_proxy_recycles_connections_every_two_seconds(evening: Evening) -> None:
    seen = evening.recycled
    print(f"\n{seen.events} events, {seen.cuts} connections cut, {seen.reconnects} reconnects")
    assert seen.exact
    assert seen.events > FAST // 10, "an event for every few tokens, on a busy machine"
    assert seen.cuts >= 6
    assert seen.reconnects >= 1, "on a busy machine several breaks are one"


async def test_after_the_end_nobody_asks_again(evening: Evening) -> None:
    seen = evening.ended
    assert seen.requests.count("its own") == 2, "EventSource comes back once, and 204 sends it away"
    assert seen.requests.count("the page's") <= 1
    assert seen.later == 0
