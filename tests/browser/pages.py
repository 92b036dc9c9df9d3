"""What a person does and sees on the page, by the names that a person (or a screen reader) knows it by."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

WAIT_MS = 60_000


def address(task_id: str) -> str:
    """The task's page."""
    return f"/#/tasks/{task_id}"


def state(page: Page) -> Locator:
    """The badge beside the title."""
    return page.locator(".title-line .badge")


def pill(page: Page) -> Locator:
    """The state of the connection, in words."""
    return page.locator(".pill")


def text(page: Page) -> Locator:
    """Where the text is."""
    return page.locator(".text")


def button(page: Page, name: str) -> Locator:
    """A button by its label."""
    return page.get_by_role("button", name=name, exact=True)


async def raw(page: Page) -> None:
    """Switch to the text exactly as it is."""
    if await button(page, "Raw").get_attribute("aria-pressed") != "true":
        await button(page, "Raw").click()


async def shown(page: Page) -> str:
    """The text on the page, raw."""
    await raw(page)
    return await text(page).text_content() or ""


async def until_state(page: Page, word: str, within_ms: int = WAIT_MS) -> None:
    """Wait for the badge."""
    await expect(state(page)).to_have_text(word, timeout=within_ms)


async def until_exact(page: Page, whole: str, within_ms: int = WAIT_MS) -> None:
    """Wait for the end, and compare every character; the page itself has checked the digest, too."""
    await until_state(page, "Completed", within_ms)
    await expect(page.locator(".checked")).to_contain_text("exact", timeout=within_ms)
    assert await shown(page) == whole


async def until_longer(page: Page, length: int, within_ms: int = WAIT_MS) -> int:
    """Wait until more than `length` UTF-16 units of text are shown; returns how many."""
    await raw(page)
    handle = await page.wait_for_function(
        "(n) => { const l = document.querySelector('.text')?.textContent.length ?? 0; return l > n && l }",
        arg=length,
        timeout=within_ms,
    )
    return int(await handle.json_value())
