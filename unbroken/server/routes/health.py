"""Is it alive, is it ready. Open to everybody; they say nothing about tasks."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unbroken.server.context import Services, services
from unbroken.tasks.errors import StoreUnavailable

LATE_S = 10.0  # a loop that was silent for longer counts as stuck; the slowest one is told apart below
ANSWER_S = 1.0


async def alive(_: Request) -> Response:
    """GET /healthz: the process serves requests."""
    return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})


async def ready(request: Request) -> Response:
    """GET /readyz: Redis answers now, and every loop has done its work lately."""
    checks = await look(services(request))
    fine = all(checks.values())
    body = {"status": "ready" if fine else "not ready", "checks": checks}
    return JSONResponse(body, 200 if fine else 503, {"Cache-Control": "no-store"})


async def look(shared: Services) -> dict[str, bool]:
    """Each check by name."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await shared.store.time_ms()
        redis = True
    except (StoreUnavailable, TimeoutError):
        redis = False
    now = time.monotonic()
    checks = {"redis": redis, "feed": now - shared.hub.feed.last_answer < LATE_S}
    checks["hub"] = now - shared.hub.checked < LATE_S
    for loop in shared.loops:
        checks[loop.name] = now - loop.finished < max(LATE_S, loop.every_s * 3)
    return checks
