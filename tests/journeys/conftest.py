"""Journeys run against real processes: a Valkey with its file, a server, workers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.nursery import QuickStack
from tests.support.processes import Stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stack]:
    """One server and one worker for a whole file, scripted backend, leases of 2 s: starting takes the time."""
    async with QuickStack() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def stack(shared: Stack) -> Stack:
    """The same, with what an earlier test has killed back in its place."""
    if not shared.servers[0].alive:
        await shared.start_server(0)
    shared.workers = [worker for worker in shared.workers if worker.alive]
    if not shared.workers:
        await shared.start_worker()
    return shared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    """Print the logs of the processes when a test fails; they are gone a moment later."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    made = fixtures.get("shared")
    if isinstance(made, Stack) and getattr(report, "when", "") == "call" and getattr(report, "failed", False):
        report.sections.append(("logs of the stack", made.logs()))  # type: ignore[attr-defined]
    return report
