"""The page says what is so: who is silent, how it ended, what was asked for, what happened before."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.support.api import PROMPT, scripted, story
from tests.support.processes import Stack
from tests.support.upstream import Plan, running_upstream

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_silent_model_is_told_although_the_connection_lives(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=240, rate=60, fail="hang", fail_at=80))
    page = await open_page(pages.address(task["task_id"]))
    await pages.until_longer(page, 50)
    await expect(pages.pill(page)).to_have_text(re.compile(r"^Nothing heard from the model for \d+ s$"))
    await expect(pages.pill(page)).to_have_class(re.compile(r"\bsilent\b"))
    await expect(page.locator(".banner")).to_contain_text("The connection is fine.")
    await expect(page.locator(".banner")).to_contain_text("another worker goes on from exactly here")
    await pages.until_state(page, "Writing")
    # Who drops out and comes back in this silence, or comes new, gets everything at once, and is told that it lives.
    so_far = await pages.shown(page)
    await pages.button(page, "Drop my connection").click()
    await expect(page.locator(".connection .count")).to_contain_text("1 reconnect")
    await expect(pages.pill(page)).to_have_text(re.compile(r"^Nothing heard from the model for \d+ s$"))
    assert await pages.shown(page) == so_far
    late = await open_page(pages.address(task["task_id"]))
    await pages.until_longer(late, len(so_far) - 1)
    assert await pages.shown(late) == so_far
    await expect(pages.pill(late)).to_have_text(re.compile(r"^Nothing heard from the model for \d+ s$"))
    await late.close()
    stack.kill_workers()
    await pages.until_state(page, "Recovering")
    await expect(pages.pill(page)).to_have_text("Live, waiting for a worker")
    await stack.start_worker()
    await pages.until_exact(page, story(tokens=240))
    await expect(pages.pill(page)).to_have_text("Complete")


async def test_a_model_that_has_not_begun_is_something_else(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=40, fail="hang", fail_at=0), recovery="manual")
    page = await open_page(pages.address(task["task_id"]))
    await expect(pages.pill(page)).to_have_text(re.compile(r"^The model has not begun, for \d+ s$"))
    await expect(page.locator(".banner")).to_contain_text("waits for Recover")
    await pages.button(page, "Pause").click()
    await pages.until_state(page, "Paused")
    await expect(pages.pill(page)).to_have_text("Live, paused")
    await page.reload()
    await expect(pages.pill(page)).to_have_text("Live, paused")


async def test_the_pill_says_how_it_ended(open_page: NewPage, stack: Stack) -> None:
    failing = await stack.api.submit(scripted(tokens=60, fail="permanent", fail_at=20))
    page = await open_page(pages.address(failing["task_id"]))
    await pages.until_state(page, "Failed")
    await expect(pages.pill(page)).to_have_text("Failed")
    long = await stack.api.submit(scripted(tokens=2_000, rate=40))
    await page.goto(pages.address(long["task_id"]))
    await pages.until_longer(page, 10)
    await pages.button(page, "Cancel").click()
    await pages.button(page, "Stop it").click()
    await pages.until_state(page, "Cancelled")
    await expect(pages.pill(page)).to_have_text("Cancelled")
    await expect(page.locator(".figure strong")).to_have_text("–")


async def test_what_was_asked_for_is_found_in_any_browser(
    browser_of_somebody_else: BrowserContext, stack: Stack
) -> None:
    task = await stack.api.submit({**scripted(tokens=20), "system": "Be <b>brief</b>.", "seed": 5}, topic="night")
    page = await browser_of_somebody_else.new_page()
    await page.goto(pages.address(task["task_id"]))
    await expect(page.get_by_role("heading", name=PROMPT)).to_be_visible()
    await expect(page.locator(".tasks .row-title")).to_have_text(PROMPT)
    await expect(page.locator(".input-body")).to_be_hidden()
    await page.get_by_text("Input", exact=True).click()
    await expect(page.locator(".input-block p")).to_have_text(["Be <b>brief</b>.", PROMPT])
    await expect(page.locator(".input-facts")).to_contain_text("seed")


async def test_items_stand_beside_their_results(browser_of_somebody_else: BrowserContext, stack: Stack) -> None:
    with running_upstream() as upstream:
        refusal = Plan(status=400, error={"error": {"message": "no"}})
        upstream.answer(refusal, refusal)
        stack.kill_workers()
        await stack.start_worker(backend="openai", backend_url=upstream.url, model="m", batch_parallel=1)
        task = await stack.api.submit({"instruction": "Say it.", "items": ["red", "blue"]}, kind="batch")
        page = await browser_of_somebody_else.new_page()
        await page.goto(pages.address(task["task_id"]))
        await pages.until_state(page, "Completed")
        await expect(page.locator(".items .asked")).to_have_text(["red", "blue"])
        await expect(page.locator(".items tr.bad")).to_have_count(2)
        await expect(page.locator(".tasks .row-note")).to_have_text("2 of 2 items failed")
        await expect(pages.state(page)).to_have_class(re.compile(r"\bwarned\b"))


async def test_a_chain_shows_which_steps_are_done(browser_of_somebody_else: BrowserContext, stack: Stack) -> None:
    steps = [{"name": name, "prompt": f"Write the {name}."} for name in ("outline", "middle", "end")]
    script = {"seed": 7, "tokens": 50, "rate": 20}
    page = await browser_of_somebody_else.new_page()
    await page.goto("/#/new")
    task = await stack.api.submit({"steps": steps, "scripted": script}, kind="chain")
    await page.goto(pages.address(task["task_id"]))
    shown = page.locator(".chain-steps li")
    await expect(shown).to_have_count(3)
    await expect(page.locator(".chain-steps .now")).to_contain_text("middle")
    await expect(page.locator(".chain-steps .done")).to_have_count(1)
    heading = page.locator(".rendered", has_text=re.compile(r"^\s*outline\s*$"))
    await expect(heading).to_be_visible()  # not raw until all that stands below it is written
    await pages.until_state(page, "Completed")
    await expect(page.locator(".chain-steps .done")).to_have_count(3)


async def told(page: Page) -> list[str]:
    """The titles of the story, oldest first."""
    titles = await page.locator(".story strong").all_text_contents()
    return [title for title in reversed(titles) if not title.startswith("Saved")]


async def test_who_comes_late_is_told_the_whole_story_once(
    open_page: NewPage, browser_of_somebody_else: BrowserContext, stack: Stack
) -> None:
    task = await stack.api.submit(scripted(tokens=500, rate=60), recovery="manual")
    first = await open_page(pages.address(task["task_id"]))
    await pages.until_longer(first, 100)
    stack.kill_workers()
    await pages.until_state(first, "Paused")
    await stack.api.post(task["task_id"], "recover")
    late = await browser_of_somebody_else.new_page()
    await late.goto(pages.address(task["task_id"]))
    await pages.until_state(late, "Recovering")
    so_far = ["Accepted", "Started", "Stopped", "Going to continue"]
    await expect(late.locator(".story")).to_contain_text("Started")
    assert await told(late) == so_far
    await stack.start_worker()
    await pages.until_exact(late, story(tokens=500))
    whole = [*so_far, "Attempt 2 continues", "Completed"]
    for page in (first, late):
        await expect(page.locator(".story")).to_contain_text("Completed")
        assert await told(page) == whole
        await page.reload()
        await expect(page.locator(".story")).to_contain_text("Completed")
        await expect(page.locator(".story")).to_contain_text("Stopped")
        assert await told(page) == whole, "nothing twice after a reload"


async def test_seed_system_and_model_are_options(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/#/new")
    await page.get_by_label("Prompt", exact=True).fill("Short.")
    await page.get_by_text("Options").click()
    await page.get_by_label("System message").fill("Be brief.")
    await page.get_by_label("Model", exact=True).fill("small")
    await page.get_by_label("Seed").fill("0")
    await pages.button(page, "Start").click()
    await page.wait_for_url("**/#/tasks/*")
    given = (await stack.api.http.get(f"/api/tasks/{page.url.rpartition('/')[2]}/input")).json()
    assert (given["system"], given["model"], given["seed"]) == ("Be brief.", "small", 0)


async def test_a_wrong_address_is_answered_with_a_page(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/nope")
    await expect(page.get_by_role("heading")).to_have_text("There is nothing here")
    await page.get_by_role("link", name="To the tasks").click()
    await expect(page.get_by_role("heading", name="What should be written?")).to_be_visible()
    assert (await stack.api.http.get("/nope")).headers["content-type"] == "application/problem+json"


async def test_a_page_that_comes_back_from_the_cache_goes_on(browser: Browser, stack: Stack) -> None:
    async def there_and_back(shared: bool) -> list[str | bool]:
        context = await browser.new_context(base_url=stack.url)
        page = await context.new_page()
        if not shared:
            await page.add_init_script("delete globalThis.SharedWorker")
        await page.add_init_script("addEventListener('pageshow', (event) => (globalThis.persisted = event.persisted))")
        await page.goto("/#/new")
        task = await stack.api.submit(scripted(seed=int(shared), tokens=300, rate=60))
        await page.goto(pages.address(task["task_id"]))
        before = await pages.until_longer(page, 50)
        await page.evaluate("globalThis.mark = 'the same page'")
        await page.goto("/healthz")
        await stack.api.until_length(task["task_id"], before + 300)
        await page.go_back(wait_until="commit")
        await pages.until_longer(page, before + 300)
        came: list[str | bool] = await page.evaluate("[globalThis.mark, globalThis.persisted]")
        await pages.until_exact(page, story(seed=int(shared), tokens=300))
        await context.close()
        return came

    # Whether a page is kept is Chromium's to decide, each time anew: one that we keep from it is never kept.
    kept: dict[bool, list[str | bool]] = {}
    for _ in range(5):
        left = [shared for shared in (True, False) if kept.get(shared) != ["the same page", True]]
        kept |= zip(left, await asyncio.gather(*map(there_and_back, left)), strict=True)
    assert kept[True] == kept[False] == ["the same page", True], "with a shared worker, and without"
