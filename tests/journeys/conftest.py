"""Journeys run against real processes: a Valkey with its file, a server, workers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.processes import Stack


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    """One server and one worker, scripted backend, leases of 2 s."""
    async with Stack() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Stack]:
    """The same for a whole file of tests that kill nothing; starting processes is what takes time."""
    async with Stack() as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    """Print the logs of the processes when a test fails; they are gone a moment later."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    made = fixtures.get("stack") or fixtures.get("shared")
    if isinstance(made, Stack) and getattr(report, "when", "") == "call" and getattr(report, "failed", False):
        report.sections.append(("logs of the stack", made.logs()))  # type: ignore[attr-defined]
    return report
