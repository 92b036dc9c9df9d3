"""What the options of the form do, and what a batch with failed items says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.support.processes import Stack
from tests.support.upstream import Plan, running_upstream

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_options_of_a_task_reach_the_server(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/#/new")
    await page.get_by_label("Prompt").fill("Later, please.")
    await page.get_by_text("Options").click()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await page.get_by_label("Not before").fill(tomorrow.strftime("%Y-%m-%dT%H:%M"))
    await page.get_by_label("Errors until it fails for good").fill("7")
    await page.get_by_label("If the same was done before").select_option("3600")
    await pages.button(page, "Start").click()
    await pages.until_state(page, "Waiting")
    await expect(page.locator(".banner")).to_contain_text("For later. It starts at")
    [task] = (await stack.api.http.get("/api/tasks")).json()["items"]
    assert task["max_attempts"] == 7
    assert abs(datetime.fromisoformat(task["retry_at"]) - tomorrow) < timedelta(hours=15), "in the browser's own zone"
    await pages.button(page, "Cancel").click()


async def test_the_same_again_is_there_at_once(open_page: NewPage, stack: Stack) -> None:
    ids = set()
    for _ in range(2):
        page = await open_page("/#/new")
        await page.get_by_label("Prompt").fill("Once is enough.")
        await page.get_by_text("Options").click()
        await page.get_by_label("If the same was done before").select_option("3600")
        await pages.button(page, "Start").click()
        await pages.until_state(page, "Completed")
        ids.add(page.url.rpartition("/")[2])
    assert len(ids) == 1
    assert len((await stack.api.http.get("/api/tasks")).json()["items"]) == 1


async def test_a_batch_with_failed_items_says_so(open_page: NewPage, stack: Stack) -> None:
    with running_upstream() as upstream:
        refusal = Plan(status=400, error={"error": {"message": "no"}})
        upstream.answer(Plan(text="good one"), refusal, Plan(text="another"))
        stack.kill_workers()
        await stack.start_worker(backend="openai", backend_url=upstream.url, model="m", batch_parallel=1)
        batch = {"instruction": "Say it.", "items": ["a", "b", "c"]}
        task = await stack.api.submit(batch, kind="batch")
        page = await open_page(pages.address(task["task_id"]))
        await pages.until_state(page, "Completed")
        await expect(page.locator(".banner")).to_contain_text("1 of 3 items failed.")
        rows = page.locator(".items tbody tr")
        await expect(rows).to_have_count(3)
        await expect(rows.nth(1)).to_contain_text("bad_request: The model's server refused the request.")
        await expect(rows.nth(0)).to_contain_text("good one")
