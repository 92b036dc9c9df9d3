"""Somebody writes a prompt, watches the text come, and finds it again anywhere."""

from __future__ import annotations

from playwright.async_api import BrowserContext, expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.support.api import Api, scripted, story
from tests.support.processes import Stack


async def test_a_prompt_becomes_text_on_the_page(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/")
    await page.get_by_label("Prompt", exact=True).fill("Write about a lighthouse.")
    await page.get_by_text("Options").click()
    await page.get_by_label("Most tokens").fill("120")
    await page.get_by_label("Topic", exact=True).last.fill("night <b>shift</b>")
    await pages.button(page, "Start").click()
    await page.wait_for_url("**/#/tasks/*")
    await pages.until_state(page, "Completed")
    task_id = page.url.rpartition("/")[2]
    await pages.until_exact(page, await stack.api.text(task_id))
    await expect(page.get_by_role("heading", name="Write about a lighthouse.")).to_be_visible()
    row = page.locator(".tasks a", has_text="Write about a lighthouse.")
    await expect(row).to_contain_text("night <b>shift</b>")
    await expect(row).to_contain_text("Completed")


async def test_text_comes_while_it_is_written_and_survives_a_reload(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=900, rate=60))
    page = await open_page(pages.address(task["task_id"]))
    first = await pages.until_longer(page, 0)
    assert await pages.until_longer(page, first) > first
    await expect(page.locator(".row-percent")).to_have_count(1)
    pairs = await page.evaluate(
        """async () => {
          const out = [];
          for (let i = 0; i < 20; i += 1) {
            await new Promise((resolve) => setTimeout(resolve, 30));
            out.push(['.row-percent', '.connection .percent'].map((one) => document.querySelector(one)?.textContent));
          }
          return out;
        }"""
    )
    written = [(row, task) for row, task in pairs if task]  # it may have ended meanwhile
    assert all(row in (None, task) for row, task in written), f"the list and the task say the same: {pairs}"
    await page.reload()
    await pages.until_longer(page, first)
    await page.goto("/#/new")
    await page.go_back()
    await pages.until_exact(page, story(tokens=900))


async def test_the_address_is_enough_on_another_device(
    open_page: NewPage, browser_of_somebody_else: BrowserContext, stack: Stack
) -> None:
    task = await stack.api.submit(scripted(tokens=200, rate=0))
    page = await open_page(pages.address(task["task_id"]))
    await pages.until_exact(page, story(tokens=200))
    other = await browser_of_somebody_else.new_page()
    await other.goto(pages.address(task["task_id"]))
    await pages.until_exact(other, story(tokens=200))


async def test_a_batch_shows_its_items_in_order(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/#/new")
    await page.locator(".kinds").get_by_text("Batch").click()
    await page.get_by_label("Instruction for every item").fill("Say it shorter.")
    await page.get_by_label("Items", exact=True).fill("\n".join(f"line {n}" for n in range(8)))
    await expect(page.get_by_text("8 items")).to_be_visible()
    await page.get_by_text("Options").click()
    await page.get_by_label("Most tokens").fill("5")
    await pages.button(page, "Start").click()
    await pages.until_state(page, "Completed")
    rows = page.locator(".items tbody tr")
    await expect(rows).to_have_count(8)
    assert await rows.locator("th").all_text_contents() == [str(n + 1) for n in range(8)]


async def test_a_chain_goes_through_its_steps(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/")
    new_task = page.get_by_role("link", name="New task")
    await new_task.click()
    await expect(page.get_by_label("Prompt", exact=True)).to_be_focused()
    await pages.button(page, "Start").click()
    await expect(page.get_by_role("alert")).to_have_text("“Prompt” is still empty.")
    await page.locator(".kinds").get_by_text("Chain").click()
    await page.get_by_label("Prompt of step 1").fill("To be taken out.")
    await pages.button(page, "Add a step").click()
    await pages.button(page, "Remove step 1").click()
    await expect(pages.button(page, "Remove step 1")).to_be_focused()
    for label in ("Name", "Prompt", "Remove"):
        assert await page.locator(".steps").get_by_label(label).evaluate_all(
            "all => all.map((one) => one.ariaLabel.at(-1) + (one.placeholder?.match(/\\d/) ?? ''))"
        ) == (["11", "22"] if label == "Name" else ["1", "2"])
    await new_task.click()  # what is filled in already stays
    await expect(page.get_by_label("Prompt of step 1")).to_be_focused()
    for n, prompt in enumerate(["Make an outline.", "Write the text."], start=1):
        await page.get_by_label(f"Prompt of step {n}").fill(prompt)
    await page.get_by_text("Options").click()
    await page.get_by_label("Most tokens").fill("0")
    await page.get_by_text("Options").click()
    await pages.button(page, "Start").click()
    await expect(page.get_by_role("alert")).to_have_text("“Most tokens” must be from 1 to 1,000,000.")
    await expect(page.get_by_label("Most tokens")).to_be_focused()
    await page.get_by_label("Most tokens").fill("40")
    await pages.button(page, "Start").click()
    await pages.until_state(page, "Completed")
    await pages.until_exact(page, await stack.api.text(page.url.rpartition("/")[2]))
    await expect(page.locator(".progress-words")).to_contain_text("2 of 2 steps")


async def test_a_task_that_is_not_there_is_said_in_words(open_page: NewPage, stack: Stack) -> None:
    page = await open_page(pages.address("s0-nothing"))
    await expect(page.get_by_role("alert")).to_contain_text("This task cannot be shown")
    await page.get_by_role("link", name="To the inbox").click()
    await expect(page.get_by_role("heading", name="What should be written?")).to_be_visible()


async def test_wrong_input_is_shown_at_the_form(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/#/new")
    await page.get_by_label("Prompt", exact=True).fill("   x")
    await page.get_by_label("Prompt", exact=True).fill(" \n ")
    await pages.button(page, "Start").click()
    await expect(page.locator(".compose-form .problem")).to_be_visible()
    assert "/tasks/" not in page.url


async def test_filters_and_search_narrow_the_list(open_page: NewPage, stack: Stack) -> None:
    api: Api = stack.api
    await api.submit(scripted(tokens=5), topic="alpha", priority="high")
    await api.submit(scripted(tokens=5), topic="beta", sender="cron")
    page = await open_page("/")
    rows = page.locator(".tasks li")
    await expect(rows).to_have_count(2)
    await pages.button(page, "More filters").click()
    await page.get_by_label("Any priority").select_option("high")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("alpha")
    await expect(pages.button(page, "More filters (1)")).to_be_visible()
    await page.get_by_label("Any priority").select_option("")
    await page.get_by_label("Search in the list").fill("cron")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Search in the list").fill("nowhere")
    await expect(page.get_by_text("Nothing fits these filters.")).to_be_visible()
    await pages.button(page, "Clear the filters").click()
    await expect(rows).to_have_count(2)


async def test_pause_cancel_and_delete(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=4_000, rate=40))
    page = await open_page(pages.address(task["task_id"]))
    await pages.until_longer(page, 10)
    await pages.button(page, "Pause").focus()
    await page.keyboard.press("Enter")
    await pages.until_state(page, "Paused")
    await expect(pages.button(page, "Recover")).to_be_focused()  # whoever has no mouse goes on from here
    await expect(page.locator(".banner")).to_contain_text("paused by hand")
    await pages.button(page, "Cancel").click()
    await expect(pages.button(page, "Let it go on")).to_be_focused()  # Enter does no harm
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(pages.button(page, "Cancel")).to_be_focused()
    await pages.until_state(page, "Paused")
    await pages.button(page, "Cancel").click()
    await pages.button(page, "Stop it").click()
    await pages.until_state(page, "Cancelled")
    await pages.button(page, "Delete").click()
    await pages.button(page, "Delete it").click()
    await expect(page.get_by_text("Deleted.")).to_be_visible()
    assert (await stack.api.http.get(f"/api/tasks/{task['task_id']}")).status_code == 404
