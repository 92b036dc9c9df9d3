"""Keys and signing in, the keyboard, screen readers, a phone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.support.api import Api, scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import Stack, environment

# Names that a screen reader needs, sizes that a finger needs: looked for in the whole page.
UNNAMED = """() => [...document.querySelectorAll('button, a, input, select, textarea, [role=progressbar]')]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length || one.title))
  .map((one) => one.outerHTML.slice(0, 80))"""

# What a finger would have to scroll sideways for; what scrolls inside its own box is fine.
BEYOND = """() => [document.documentElement, ...document.querySelectorAll('button, a, input, h1, h2, .pill, .card')]
  .filter((one) => one.checkVisibility() && !one.closest('.unseen, #skip, .kinds, table, pre'))
  .filter((one) => one === document.documentElement ? one.scrollWidth > innerWidth
    : one.getBoundingClientRect().right > innerWidth + 0.5)
  .map((one) => one.outerHTML.slice(0, 100))"""


# What a finger would miss (WCAG 2.2, 2.5.8); links inside of sentences are another matter.
TOO_SMALL = """() => [...document.querySelectorAll('button, .button, select, summary, nav a, li a, input, textarea')]
  .filter((one) => one.checkVisibility() && !one.closest('.kinds, .unseen, #skip'))
  .filter((one) => Math.min(one.getBoundingClientRect().width, one.getBoundingClientRect().height) < 24)
  .map((one) => one.outerHTML.slice(0, 100))"""

STATIC = Path(__file__).parents[2] / "unbroken" / "static"
# Which colour is read on which.
READ_ON = {
    "ink": "ground surface raised line",
    "soft": "ground surface raised accent-wash warn-wash bad-wash info-wash",
    "faint": "ground surface raised accent-wash",
    "accent": "ground surface",
    "accent-strong": "accent-wash surface",
    "accent-ink": "accent accent-strong",
    "warn": "warn-wash surface accent-wash",
    "bad": "bad-wash surface ground accent-wash",
    "info": "info-wash surface",
}


def make_key(stack: Stack, owner: str) -> str:
    """As an operator does it."""
    made = subprocess.run(
        [sys.executable, "-m", "unbroken", "keys", "create", owner, "--redis-url", stack.redis_url],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.strip().splitlines()[-1].split()[-1]


@pytest_asyncio.fixture(loop_scope="session")
async def guarded() -> AsyncIterator[tuple[Stack, str]]:
    """A server that asks for keys, and one key."""
    async with QuickStack(servers=0) as stack:
        key = make_key(stack, "ada")
        await stack.start_server()
        yield stack, key


async def test_signing_in_and_out(browser: Browser, guarded: tuple[Stack, str]) -> None:
    stack, key = guarded
    mine = Api(stack.url, key=key)
    task = await mine.submit(scripted(tokens=60), topic="mine")
    await mine.close()
    context = await browser.new_context(base_url=stack.url)
    page = await context.new_page()
    await page.goto(pages.address(task["task_id"]))
    await pages.button(page, "Sign in").click()
    await expect(page.get_by_role("alert")).to_have_text("“Key” is still empty.")
    await page.get_by_label("Key", exact=True).fill("ub_wrong")
    await pages.button(page, "Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("not known here")
    await page.get_by_label("Key", exact=True).fill(key)
    await pages.button(page, "Sign in").click()
    await pages.until_exact(page, story(tokens=60))
    await expect(page.locator("#who")).to_contain_text("ada")
    assert key not in page.url
    assert key not in str(await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])"))
    others = [await context.new_page() for _ in range(2)]
    for other, address in zip(others, (pages.address(task["task_id"]), "/"), strict=True):
        await other.goto(address)
        await expect(other.locator(".tasks li")).to_have_count(1)
    await pages.button(page, "Sign out").click()
    for tab in (page, *others):  # a computer that is shared: no tab goes on showing what was read in it
        await expect(tab.get_by_label("Key", exact=True)).to_be_visible()
        await expect(tab).to_have_title("Unbroken")
        for what in (".tasks li", ".text", ".toast", "#who *"):
            await expect(tab.locator(what)).to_have_count(0)
        assert await tab.get_by_text("mine").count() == 0
        assert await tab.evaluate("Object.keys(sessionStorage).concat(Object.keys(localStorage))") == []
    await context.close()


def contrast(one: str, other: str) -> float:
    """Of two colours like #0a5347, as WCAG 2 defines it: 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
async def test_colours_are_far_enough_apart(scheme: int) -> None:
    block = re.findall(r":root \{(.*?)\}", (STATIC / "base.css").read_text(), re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
    for ink, grounds in READ_ON.items():
        for ground in grounds.split():
            assert contrast(colours[ink], colours[ground]) >= 4.5, f"{ink} on {ground}"
    assert contrast(colours["edge"], colours["surface"]) >= 3, "the border of a field"


async def test_everything_works_from_the_keyboard(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.get_by_label("Prompt", exact=True).focus()
    await page.keyboard.type("A short text.")
    await page.keyboard.press("Control+Enter")
    await page.wait_for_url("**/#/tasks/*")
    await pages.until_state(page, "Completed")
    await expect(page.locator("h1")).to_be_focused()
    first = page.locator(".tasks a").first
    await first.focus()
    await stack.api.submit(scripted(tokens=5, prompt="Another one."))
    await expect(page.locator(".tasks a")).to_have_count(2)
    await expect(page.locator(".tasks a").nth(1)).to_be_focused()  # what comes above it does not take the focus away
    await page.keyboard.press("ArrowUp")
    await expect(page.locator(".tasks a").first).to_be_focused()
    assert await page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") != "none"
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Another one.")


async def test_screen_readers_hear_states_and_not_every_token(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=180, rate=60))
    page = await open_page(pages.address(task["task_id"]))
    await pages.until_longer(page, 50)
    await page.evaluate(
        """() => { globalThis.heard = []; new MutationObserver(() => heard.push(announcer.textContent))
             .observe(announcer, { childList: true, characterData: true, subtree: true }); }"""
    )
    assert await page.evaluate(UNNAMED) == []
    assert await page.locator(".text[aria-live], .text [aria-live]").count() == 0
    await pages.until_exact(page, story(tokens=180))
    heard = await page.evaluate("heard")
    assert "The task is now: Completed." in heard
    assert len(heard) < 6


async def test_a_small_phone_is_wide_enough(browser: Browser, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=300), topic="a topic that is rather long for a small screen " * 2)
    context = await browser.new_context(
        base_url=stack.url, viewport={"width": 320, "height": 640}, is_mobile=True, has_touch=True
    )
    page = await context.new_page()
    for address in ("/", "/#/new", pages.address(task["task_id"]), "/#/dead-letters"):
        await page.goto(address)
        await expect(page.locator("main h1, .inbox h2").locator("visible=true").first).to_be_visible()
        if "/tasks/" in address:
            await pages.until_state(page, "Completed")
        assert await page.evaluate(BEYOND) == [], address
        assert await page.evaluate(TOO_SMALL) == [], address
    await context.close()


async def test_right_to_left_lines_run_from_the_right(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/")
    directions = await page.evaluate(
        """async () => {
          const { INITIAL, fold } = await import('/static/stream.js');
          const { TextView } = await import('/static/textview.js');
          const text = new TextView(async () => { throw new Error('plain'); });
          document.querySelector('main').replaceChildren(text.element);
          const body = 'שלום עולם\\n\\nhello world\\n';
          text.update(fold(INITIAL, { type: 'chunk', data: { offset: 0, text: body, progress: 1 } }).text, true);
          const node = text.element.querySelector('.part').firstChild;
          const box = text.element.getBoundingClientRect();
          const place = (from, to) => { const range = document.createRange(); range.setStart(node, from);
            range.setEnd(node, to); return range.getBoundingClientRect(); };
          const [first, last] = [place(0, 9), place(body.indexOf('hello'), body.length - 1)];
          return [box.right - first.right < 3, last.left - box.left < 3];
        }"""
    )
    assert directions == [True, True]
