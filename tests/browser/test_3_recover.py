"""The recover click, and the dead letters."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.support.api import PROMPT, scripted, story
from tests.support.processes import Stack


async def test_a_double_click_on_recover_is_one_recovery(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=500, rate=60), recovery="manual")
    page = await open_page(pages.address(task["task_id"]))
    await pages.until_longer(page, 100)
    stack.kill_workers()
    await pages.until_state(page, "Paused")
    await expect(page.locator(".banner")).to_contain_text("worker that was running this task was lost")
    before = await pages.shown(page)
    assert before
    await pages.button(page, "Recover").dblclick()
    await pages.until_state(page, "Recovering")
    await stack.start_worker()
    await pages.until_longer(page, len(before))
    assert (await pages.shown(page)).startswith(before), "the text goes on from where it stood"
    await pages.until_exact(page, story(tokens=500))
    assert (await stack.api.task(task["task_id"]))["attempts"] == 2
    await expect(page.locator(".facts").first).to_contain_text("1 lost worker")  # though it was recovered
    assert await page.locator(".story li", has_text="Going to continue").count() == 1


async def test_dead_letters_are_grouped_and_replayed(open_page: NewPage, stack: Stack) -> None:
    failing = scripted(tokens=60, fail="permanent", fail_at=20)
    tasks = [await stack.api.submit(failing, topic=f"letter {n}") for n in range(2)]
    for task in tasks:
        await stack.api.until_state(task["task_id"], "failed")
    page = await open_page("/#/dead-letters")
    group = page.locator(".group")
    await expect(group).to_have_count(1)
    await expect(group.locator(".group-count")).to_have_text("2")
    await group.get_by_role("link", name="Show").click()
    await expect(page.locator(".letters li")).to_have_count(2)
    await page.locator(".letters li", has_text="letter 0").get_by_role("link", name=PROMPT).click()
    await pages.until_state(page, "Failed")
    await pages.button(page, "Replay").click()
    await pages.until_exact(page, story(tokens=60))
    await page.goto("/#/dead-letters")
    await pages.button(page, "Replay it").click()
    await expect(page.get_by_text("Nothing has failed.")).to_be_visible()
    await stack.api.until_state(tasks[1]["task_id"], "completed")
