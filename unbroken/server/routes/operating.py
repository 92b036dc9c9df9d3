"""Numbers for people and for Prometheus."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unbroken.server import metrics
from unbroken.server.auth import caller
from unbroken.server.context import services
from unbroken.server.query import query
from unbroken.tasks import overview


async def stats(request: Request) -> Response:
    """GET /api/stats: the caller's own tasks."""
    shared, who = services(request), await caller(request)
    query(request)
    return JSONResponse(await overview.owner_stats(shared.store, who.owner), headers={"Cache-Control": "no-store"})


async def prometheus(request: Request) -> Response:
    """GET /metrics: totals. Where keys are needed, this needs one too."""
    await caller(request)
    return Response(await metrics.scrape(services(request)), media_type=CONTENT_TYPE_LATEST)
