"""The main journeys behind the nginx that is shipped, over HTTP/1.1, with two servers behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.deploy.nginx import Nginx, self_signed
from tests.support.api import scripted, story
from tests.support.processes import Stack
from tests.support.viewer import Viewer

pytestmark = pytest.mark.asyncio(loop_scope="session")

TABS = 8
ALONE = 7  # one more than HTTP/1.1 would allow
MOST_LATE_MS = 200
PROTOCOLS = """() => [...new Set(['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type))
  .filter(({ name, nextHopProtocol: spoken }) => name.startsWith('http') && spoken !== '') // '' = from the cache
  .map((entry) => entry.nextHopProtocol))]"""
# When the page shows each length, by the clock that the test reads, too.
WATCH = """() => {
  const text = document.querySelector('.text');
  globalThis.shown = [];
  const look = () => shown.push([Date.now(), text.textContent.length]);
  new MutationObserver(look).observe(text, { childList: true, characterData: true, subtree: true });
}"""


@pytest.fixture
def nginx(stack: Stack) -> Iterator[Nginx]:
    """In front of both."""
    with Nginx([int(url.rpartition(":")[2]) for url in stack.urls]) as made:
        yield made


@pytest.fixture
def base_url(nginx: Nginx) -> str:
    """The page comes through nginx."""
    return nginx.url


def delays(viewer: Viewer, shown: list[tuple[float, int]]) -> list[float]:
    """ms from each chunk's arrival at a viewer of the server itself until the page shows its last character."""
    to_wall = time.time() - time.monotonic()
    found: list[float] = []
    text = ""
    for event in viewer.events:
        if event.name != "chunk":
            continue
        text = text[: event.data["offset"]] + event.data["text"]
        units = len(text.encode("utf-16-le")) // 2
        at = (event.at + to_wall) * 1000
        if at > shown[0][0]:
            found.append(next(when for when, length in shown if length >= units) - at)
    return sorted(found)


async def test_text_is_on_the_page_within_200_ms_of_its_event(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=400, rate=80))
    page = await open_page(pages.address(task["task_id"]))
    await pages.until_longer(page, 50)  # and raw: what is shown is what came
    await page.evaluate(WATCH)
    viewer = await Viewer(stack.url, task["task_id"]).follow()
    await pages.until_exact(page, story(tokens=400))
    late = delays(viewer, await page.evaluate("shown"))
    assert len(late) > 20
    middle, nearly = late[len(late) // 2], late[len(late) * 95 // 100]
    print(f"\nfrom the server's event through nginx to the page: median {middle:.0f} ms, 95 % {nearly:.0f} ms")
    assert middle < MOST_LATE_MS


async def test_eight_tabs_are_all_live_on_http_1_1(open_page: NewPage, stack: Stack) -> None:
    tasks = [await stack.api.submit(scripted(seed=n, tokens=250, rate=40)) for n in range(TABS)]
    tabs: list[Page] = await asyncio.gather(*(open_page(pages.address(task["task_id"])) for task in tasks))
    assert await tabs[0].evaluate(PROTOCOLS) == ["http/1.1"]
    for tab in tabs:
        await pages.until_longer(tab, 0)
    assert await tabs[-1].evaluate("fetch('/api/stats').then((answer) => answer.status)") == 200
    whole = [story(seed=n, tokens=250) for n in range(TABS)]
    await asyncio.gather(*(pages.until_exact(tab, text) for tab, text in zip(tabs, whole, strict=True)))


async def test_more_than_six_streams_on_one_connection_of_http_2(
    browser: Browser, stack: Stack, tmp_path: Path
) -> None:
    """The variant with TLS: each tab has a stream of its own here."""
    ports = [int(url.rpartition(":")[2]) for url in stack.urls]
    task = await stack.api.submit(scripted(tokens=400, rate=60))
    with Nginx(ports, certificate=self_signed(tmp_path)) as tls:
        context = await browser.new_context(base_url=tls.url, ignore_https_errors=True)
        await context.add_init_script("delete globalThis.SharedWorker")
        tabs = [await context.new_page() for _ in range(ALONE)]
        await asyncio.gather(*(tab.goto(pages.address(task["task_id"])) for tab in tabs))
        for tab in tabs:
            await pages.until_longer(tab, 0)
        assert await tabs[-1].evaluate("fetch('/api/stats').then((answer) => answer.status)") == 200
        await asyncio.gather(*(pages.until_exact(tab, story(tokens=400)) for tab in tabs))
        spoken = await asyncio.gather(*(tab.evaluate(PROTOCOLS) for tab in tabs))
        await context.close()
    assert spoken == [["h2"]] * ALONE, "the page, its files, its calls and its stream"


async def test_servers_are_killed_in_turn_and_nginx_is_reloaded(open_page: NewPage, stack: Stack, nginx: Nginx) -> None:
    task = await stack.api.submit(scripted(tokens=600, rate=50))
    page = await open_page(pages.address(task["task_id"]))
    before = await pages.until_longer(page, 100)
    for number in (0, 1):
        stack.servers[number].kill()
        before = await pages.until_longer(page, before + 100)  # the other one goes on
        await stack.start_server(number)
    await expect(page.locator(".story")).to_contain_text("You reconnected")
    nginx.reload()
    await pages.until_exact(page, story(tokens=600))
    late = await open_page(pages.address(task["task_id"]))  # by the new nginx workers
    await pages.until_exact(late, story(tokens=600))
