"""The pictures of the documentation, taken from the real page in front of real processes.

They are put into docs/ where one is missing, and all of them with UNBROKEN_PICTURES=1: a test run alone changes no
file of the repository."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser import pages
from tests.browser.storyteller import Teller, telling
from tests.support.nursery import QuickStack
from tests.support.processes import Stack

DOCS = Path(__file__).parents[2] / "docs"
PROMPT = "Write a story about a lighthouse keeper."


@pytest_asyncio.fixture(loop_scope="session")
async def teller() -> AsyncIterator[Teller]:
    """A model that writes something worth a picture."""
    async with telling() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def stack(teller: Teller) -> AsyncIterator[Stack]:
    """With that model."""
    async with QuickStack(backend="openai", backend_url=teller.url, model="storyteller") as made:
        yield made


async def picture(page: Page, folder: Path, name: str) -> None:
    """At the top of the page, without a blinking cursor in a field."""
    await page.evaluate("document.querySelector('main').scrollTop = 0; window.scrollTo(0, 0)")
    await page.wait_for_timeout(300)
    path = folder / f"{name}.png"
    await page.screenshot(path=path, animations="disabled")
    assert path.stat().st_size > 20_000
    if os.environ.get("UNBROKEN_PICTURES") or not (DOCS / path.name).exists():
        shutil.copy(path, DOCS)


async def fill_the_inbox(stack: Stack) -> None:
    """A few tasks of every state."""
    api = stack.api
    for n in (1, 2, 3):
        await api.submit({"prompt": f"Read the archive {n}."}, topic=f"archive {n}", sender="cron", max_attempts=1)
    failed = await api.submit({"prompt": "translate"}, topic="translation", sender="ci", max_attempts=1)
    await api.until_state(failed["task_id"], "failed")
    done = await api.submit({"prompt": "A note.", "max_tokens": 60}, topic="night shift note", priority="low")
    await api.until_state(done["task_id"], "completed")
    items = [f"Log of day {n}" for n in range(1, 13)]
    batch = {"instruction": "Summarise.", "items": items, "max_tokens": 12}
    await api.submit(batch, kind="batch", topic="ship logs", sender="cron")


async def compose(page: Page) -> str:
    """Start the story as a person does; returns its id."""
    await page.goto("/#/new")
    await page.get_by_label("Prompt", exact=True).fill(PROMPT)
    await page.get_by_text("Options").click()
    await page.get_by_label("Most tokens").fill("420")
    await page.get_by_label("When a worker is lost").select_option("manual")
    await page.get_by_label("Topic", exact=True).last.fill("lighthouse")
    await page.get_by_label("Sender", exact=True).last.fill("ada")
    await pages.button(page, "Start").click()
    await page.wait_for_url("**/#/tasks/*")
    return page.url.rpartition("/")[2]


async def test_pictures(browser: Browser, stack: Stack, teller: Teller, tmp_path: Path) -> None:
    DOCS.mkdir(exist_ok=True)
    context = await browser.new_context(base_url=stack.url, viewport={"width": 1280, "height": 860})
    page = await context.new_page()
    await page.goto("/")
    await fill_the_inbox(stack)
    teller.until = 300
    task_id = await compose(page)
    await stack.api.until_length(task_id, 300)
    await page.goto("/#/")
    await expect(page.locator(".tasks li")).to_have_count(7)
    await page.get_by_label("Prompt", exact=True).fill("Continue with the summer after that.")
    await picture(page, tmp_path, "inbox")

    await page.goto(pages.address(task_id))
    await stack.api.until_length(task_id, 700)
    await pages.button(page, "Drop my connection").click()
    await expect(page.locator(".story")).to_contain_text("You reconnected")
    await stack.api.until_length(task_id, 1_500)
    await expect(page.locator(".rendered")).not_to_have_count(0)
    await picture(page, tmp_path, "task")

    stack.kill_workers()
    teller.until = math.inf
    await pages.until_state(page, "Paused")
    await picture(page, tmp_path, "recovery")

    phone = await browser.new_context(
        base_url=stack.url, viewport={"width": 390, "height": 844}, device_scale_factor=2, color_scheme="dark"
    )
    small = await phone.new_page()
    await small.goto(pages.address(task_id))
    await pages.until_state(small, "Paused")
    await expect(small.locator(".part")).not_to_have_count(0)
    await picture(small, tmp_path, "phone")
    await phone.close()

    await page.goto("/#/dead-letters")
    await expect(page.locator(".group")).to_have_count(2)
    await picture(page, tmp_path, "dead-letters")

    await page.goto(pages.address(task_id))
    await pages.button(page, "Recover").click()
    await stack.start_worker()
    await pages.until_exact(page, await finished(stack, task_id), 60_000)
    await context.close()


async def finished(stack: Stack, task_id: str) -> str:
    """The stored result."""
    await stack.api.until_state(task_id, "completed", within=60)
    return await stack.api.text(task_id)
