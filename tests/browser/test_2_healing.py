"""Lines are cut, networks and servers go away, workers die: the page heals by itself, exactly."""

from __future__ import annotations

from playwright.async_api import BrowserContext, expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.support.api import scripted, story
from tests.support.processes import Stack


async def test_drop_my_connection(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=800, rate=60))
    page = await open_page(pages.address(task["task_id"]))
    for n in range(1, 3):
        before = await pages.until_longer(page, 0)
        await pages.button(page, "Drop my connection").click()
        await expect(pages.pill(page)).to_contain_text("Reconnecting")
        assert await pages.until_longer(page, before) > before
        await expect(page.locator(".connection .count")).to_contain_text(f"{n} reconnect")
    await expect(page.locator(".story")).to_contain_text("because you dropped it")
    await pages.until_exact(page, story(tokens=800))


async def test_the_server_is_killed_and_comes_back(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=500, rate=60))
    page = await open_page(pages.address(task["task_id"]))
    before = await pages.until_longer(page, 100)
    stack.servers[0].kill()
    await expect(pages.pill(page)).to_contain_text("Reconnecting")
    await stack.start_server(0)
    await pages.until_longer(page, before)
    await pages.until_exact(page, story(tokens=500))


async def test_a_killed_worker_is_a_pause_in_the_text_only(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=500, rate=60))
    page = await open_page(pages.address(task["task_id"]))
    before = await pages.until_longer(page, 100)
    await stack.start_worker()
    stack.workers[0].kill()
    await pages.until_longer(page, before + 200)
    await expect(page.locator(".story")).to_contain_text("Attempt 2 continues")
    await pages.until_exact(page, story(tokens=500))


async def test_without_a_shared_worker_a_page_has_its_own_connection(
    browser_of_somebody_else: BrowserContext, stack: Stack
) -> None:
    await browser_of_somebody_else.add_init_script("delete globalThis.SharedWorker")
    task = await stack.api.submit(scripted(tokens=600, rate=60))
    page = await browser_of_somebody_else.new_page()
    await page.goto(pages.address(task["task_id"]))
    await pages.until_longer(page, 50)
    await pages.button(page, "Drop my connection").click()
    await pages.until_exact(page, story(tokens=600))
