"""A real Chromium in front of real processes.

One Chromium and one set of processes for all tests of the folder, which therefore run in one process; a fresh profile
for each test, and an inbox that is empty again. Whatever a test killed or started is put right after it. `base_url` is
where the page is asked for; other tests (behind nginx) give their own. Whatever the page complains about on its
console, a refused script or style included, fails the test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from tests.support.nursery import QuickStack
from tests.support.processes import Process, Stack

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# What the browser itself says about a line that was cut on purpose or a server that was stopped.
EXPECTED = ("net::ERR_", "status of 404", "status of 50", "status of 401", "status of 409", "status of 422")

RETRY_MS = 300  # the server's wish for reconnects; twice that, and up to half a second of the page's own, at most
PATIENCE_MS = 30_000  # how long the page may take on a busy machine
expect.set_options(timeout=PATIENCE_MS)

NewPage = Callable[..., Awaitable[Page]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Chromium lives longer than a test, so the loop that talks to it does, too."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)  # before the plain one


@dataclass
class Site:
    """The processes that all tests share, and what of them has to be there again after each."""

    stack: Stack
    worker: Process

    async def repair(self) -> None:
        """Both servers and the plain worker live, nobody else; and no task is left."""
        for number, server in enumerate(self.stack.servers):
            if not server.alive:
                await self.stack.start_server(number)
        if self.stack.workers != [self.worker] or not self.worker.alive:
            self.stack.kill_workers()
            self.worker = await self.stack.start_worker()
        http = self.stack.api.http
        while tasks := (await http.get("/api/tasks?limit=200")).json()["items"]:
            for task in tasks:
                await http.post(f"/api/tasks/{task['task_id']}/cancel")
                await http.delete(f"/api/tasks/{task['task_id']}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site() -> AsyncIterator[Site]:
    """Two servers and one worker, scripted backend, leases of 2 s."""
    async with QuickStack(servers=2, retry_ms=RETRY_MS) as made:
        yield Site(made, made.workers[0])


@pytest_asyncio.fixture(loop_scope="session")
async def stack(site: Site) -> AsyncIterator[Stack]:
    """The site's processes, all alive and without a task."""
    yield site.stack
    await site.repair()


@pytest.fixture
def base_url(stack: Stack) -> str:
    """Where the page is."""
    return stack.url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium: the machine's own, or the one that playwright installed."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    async with async_playwright() as playwright:
        # With the back/forward cache, as people have it: playwright's own list of switches turns it off.
        off = ["--disable-back-forward-cache"]
        made = await playwright.chromium.launch(executable_path=path, args=FLAGS, ignore_default_args=off)
        try:
            yield made
        finally:
            await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser, base_url: str) -> AsyncIterator[BrowserContext]:
    """One person's browser: tabs of it share cookies, storage and the SharedWorker."""
    made = await browser.new_context(
        base_url=base_url, viewport={"width": 1280, "height": 860}, reduced_motion="reduce"
    )
    made.set_default_timeout(PATIENCE_MS)
    try:
        yield made
    finally:
        await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(context: BrowserContext) -> AsyncIterator[NewPage]:
    """Opens a tab at an address; at the end no tab may have complained."""
    complaints: list[str] = []

    async def opened(address: str = "/", *, forgive: tuple[str, ...] = ()) -> Page:
        def hear(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not any(word in message.text for word in EXPECTED + forgive):
                complaints.append(message.text)

        page = await context.new_page()
        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(address)
        return page

    yield opened
    assert complaints == []
    # Tabs are closed before what they look at goes away.
    for page in list(context.pages):
        await page.close()


@pytest_asyncio.fixture(loop_scope="session")
async def browser_of_somebody_else(browser: Browser, base_url: str) -> AsyncIterator[BrowserContext]:
    """Another profile: no cookies, storage or worker in common."""
    made = await browser.new_context(base_url=base_url)
    try:
        yield made
    finally:
        await made.close()
