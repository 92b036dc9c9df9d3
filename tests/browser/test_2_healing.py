"""Lines are cut, networks and servers go away, workers die: the page heals by itself, exactly."""

from __future__ import annotations

import asyncio

from playwright.async_api import BrowserContext, Page, expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.support.api import scripted, story
from tests.support.processes import Stack
from tests.support.proxy import Proxy

TABS = 8


async def test_drop_my_connection(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=1_200, rate=60))
    page = await open_page(pages.address(task["task_id"]))
    for n in range(1, 4):
        before = await pages.until_longer(page, 0)
        await pages.button(page, "Drop my connection").click()
        await expect(pages.pill(page)).to_contain_text("Reconnecting")
        assert await pages.until_longer(page, before) > before
        await expect(page.locator(".connection .count")).to_contain_text(f"{n} reconnect")
    await expect(page.locator(".story")).to_contain_text("because you dropped it")
    await pages.until_exact(page, story(tokens=1_200))


async def test_the_network_is_away_for_a_while(browser_of_somebody_else: BrowserContext, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=900, rate=60))
    async with Proxy(stack.url.removeprefix("http://")) as line:
        page = await browser_of_somebody_else.new_page()
        await page.goto(line.url + pages.address(task["task_id"]))
        before = await pages.until_longer(page, 100)
        line.refusing = True
        line.cut()
        await expect(pages.pill(page)).to_contain_text("Reconnecting")
        await stack.api.until_length(task["task_id"], before + 800)
        line.refusing = False
        await pages.until_longer(page, before + 800)
        await expect(page.locator(".story")).to_contain_text("because the network went away")
        await pages.until_exact(page, story(tokens=900))


async def test_a_network_that_swallows_everything_is_noticed(
    browser_of_somebody_else: BrowserContext, stack: Stack
) -> None:
    task = await stack.api.submit(scripted(tokens=1_200, rate=60))
    async with Proxy(stack.url.removeprefix("http://")) as line:
        page = await browser_of_somebody_else.new_page()
        await page.goto(line.url + pages.address(task["task_id"]))
        before = await pages.until_longer(page, 100)
        line.hold()
        await page.evaluate("dispatchEvent(new Event('offline'))")  # what a phone says on its way into a tunnel
        await expect(pages.pill(page)).to_contain_text("Reconnecting")
        line.release()
        await page.evaluate("dispatchEvent(new Event('online'))")
        await pages.until_longer(page, before)
        await expect(page.locator(".story")).to_contain_text("because nothing was heard")
        await pages.until_exact(page, story(tokens=1_200))


async def test_a_browser_that_says_it_is_offline_is_believed(
    browser_of_somebody_else: BrowserContext, stack: Stack
) -> None:
    await browser_of_somebody_else.add_init_script("delete globalThis.SharedWorker")  # emulation stops at workers
    task = await stack.api.submit(scripted(tokens=900, rate=60))
    async with Proxy(stack.url.removeprefix("http://")) as line:
        page = await browser_of_somebody_else.new_page()
        await page.goto(line.url + pages.address(task["task_id"]))
        before = await pages.until_longer(page, 100)
        await browser_of_somebody_else.set_offline(True)
        line.cut()  # emulation alone leaves open connections open
        await expect(pages.pill(page)).to_contain_text("Offline, trying again")
        await browser_of_somebody_else.set_offline(False)
        await pages.until_longer(page, before)
        await pages.until_exact(page, story(tokens=900))


async def test_the_server_is_killed_and_comes_back(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=800, rate=60))
    page = await open_page(pages.address(task["task_id"]))
    before = await pages.until_longer(page, 100)
    stack.servers[0].kill()
    await expect(pages.pill(page)).to_contain_text("Reconnecting")
    await stack.start_server(0)
    await pages.until_longer(page, before)
    await pages.until_exact(page, story(tokens=800))


async def test_a_killed_worker_is_a_pause_in_the_text_only(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=500, rate=60))
    page = await open_page(pages.address(task["task_id"]))
    before = await pages.until_longer(page, 100)
    await stack.start_worker()
    stack.workers[0].kill()
    await pages.until_longer(page, before + 400)
    await expect(page.locator(".story")).to_contain_text("Attempt 2 continues")
    await pages.until_exact(page, story(tokens=500))


async def test_eight_tabs_are_all_live_and_the_api_still_answers(open_page: NewPage, stack: Stack) -> None:
    tasks = [await stack.api.submit(scripted(seed=n, tokens=400, rate=40)) for n in range(TABS)]
    tabs: list[Page] = [await open_page(pages.address(task["task_id"])) for task in tasks]
    for tab in tabs:
        await pages.until_longer(tab, 0)
    answer = await tabs[-1].evaluate("fetch('/api/stats').then((answer) => answer.status)")
    assert answer == 200
    await asyncio.gather(*(pages.until_state(tab, "Completed", 60_000) for tab in tabs))
    for n, tab in enumerate(tabs):
        await tab.bring_to_front()
        await pages.until_exact(tab, story(seed=n, tokens=400))


async def test_without_a_shared_worker_a_page_has_its_own_connection(
    browser_of_somebody_else: BrowserContext, stack: Stack
) -> None:
    await browser_of_somebody_else.add_init_script("delete globalThis.SharedWorker")
    task = await stack.api.submit(scripted(tokens=900, rate=60))
    page = await browser_of_somebody_else.new_page()
    await page.goto(pages.address(task["task_id"]))
    await pages.until_longer(page, 50)
    await pages.button(page, "Drop my connection").click()
    await pages.until_exact(page, story(tokens=900))
