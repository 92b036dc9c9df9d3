"""Generated text, topics, senders and errors are data: nothing in them runs, loads or leads anywhere."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page, expect

from tests.browser import pages
from tests.browser.conftest import NewPage
from tests.support.api import scripted
from tests.support.processes import Stack

EVIL = [
    "<script>globalThis.owned = 1</script>",
    "<img src=x onerror='globalThis.owned = 1'>",
    "<svg onload='globalThis.owned = 1'></svg>",
    '<a href="javascript:globalThis.owned = 1">a</a>',
    '<a href="data:text/html,<script>1</script>">b</a>',
    '<iframe srcdoc="<script>parent.owned = 1</script>"></iframe>',
    "<form action='https://example.com'><button>x</button></form>",
    '<p style="position:fixed" class="banner" id="announcer">c</p>',
    "<style>body { display: none }</style>",
    "<math><mtext><table><mglyph><style><img src=x onerror='globalThis.owned = 1'>",
    '<img src="https://example.com/a.png" alt="picture">',
    '<meta http-equiv="refresh" content="0;url=https://example.com">',
    '<base href="https://example.com/">',
]
REFUSED = ("Content Security Policy",)
RENDER = """async (html) => {
  const { safeFragment } = await import('/static/markdown.js');
  const place = document.createElement('div');
  document.body.append(place);
  place.append(safeFragment(html));
  const all = [...place.querySelectorAll('*')];
  const result = {
    tags: all.map((one) => one.tagName.toLowerCase()),
    attributes: all.flatMap((one) => [...one.attributes].map(({ name, value }) => `${name}=${value}`)),
    text: place.textContent,
  };
  place.remove();
  return result;
}"""


async def render(page: Page, html: str) -> dict[str, Any]:
    made: dict[str, Any] = await page.evaluate(RENDER, html)
    return made


async def test_rendered_html_is_rebuilt_from_an_allow_list(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/", forgive=REFUSED)  # parsing alone makes the browser say what it will not run
    made = await render(page, "".join(EVIL))
    banned = {"script", "img", "svg", "iframe", "form", "style", "meta", "base", "math", "button"}
    assert not banned & set(made["tags"])
    for attribute in made["attributes"]:
        assert attribute in ("dir=auto", "class=image"), attribute
    await page.wait_for_timeout(200)
    assert await page.evaluate("globalThis.owned") is None


async def test_what_markdown_needs_stays(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/")
    html = '<h1>T</h1><ol start="3"><li>x</li></ol><pre><code>a &lt; b</code></pre><a href="https://a.b/c">l</a>'
    made = await render(page, html)
    assert made["tags"] == ["h3", "ol", "li", "pre", "code", "a"]
    assert "rel=noopener noreferrer nofollow" in made["attributes"]
    assert "start=3" in made["attributes"]
    assert made["text"] == "Txa < bl"


async def test_topics_and_senders_are_text(open_page: NewPage, stack: Stack) -> None:
    task = await stack.api.submit(scripted(tokens=20, prompt=EVIL[2]), topic=EVIL[1], sender=EVIL[0])
    page = await open_page(pages.address(task["task_id"]))
    await pages.until_state(page, "Completed")
    await expect(page.locator("h1")).to_have_text(EVIL[2])
    await expect(page.locator(".facts")).to_contain_text(EVIL[0])
    await expect(page.locator(".facts")).to_contain_text(EVIL[1])
    await page.get_by_text("Input", exact=True).click()
    await expect(page.locator(".input-block p")).to_have_text(EVIL[2])
    assert await page.locator("main img, main script, main svg[onload]").count() == 0
    assert await page.evaluate("globalThis.owned") is None


async def test_the_policy_forbids_inline_script_and_style(open_page: NewPage, stack: Stack) -> None:
    page = await open_page("/", forgive=REFUSED)
    answer = await page.request.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "style=" not in await answer.text()
    ran = await page.evaluate(
        """() => new Promise((resolve) => {
          addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective), { once: true });
          const img = document.createElement('img');
          img.src = 'https://example.com/x.png';
        })"""
    )
    assert ran == "img-src"
