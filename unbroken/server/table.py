"""All addresses, in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from unbroken.server import openapi
from unbroken.server.routes import asked, dead, health, many, moves, operating, pages, results, session, stream, tasks

Endpoint = Callable[[Request], Awaitable[Response]]


class Slim:
    """An endpoint as an ASGI application: while a stream lasts, nothing of the request is kept but the stream."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        response = await self._endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


TASK = "/api/tasks/{task_id}"
STREAM = Slim(stream.stream)
_BEFORE, _BEHIND = TASK.split("{task_id}")[0], "/stream"


def direct(scope: Scope) -> ASGIApp | None:
    """The stream of one task without the router around it: the one answer that thousands hold open at once. None for
    everything else."""
    path: str = scope["path"]
    if scope["method"] != "GET" or scope.get("root_path") or not path.startswith(_BEFORE) or not path.endswith(_BEHIND):
        return None
    task_id = path[len(_BEFORE) : -len(_BEHIND)]
    if not task_id or "/" in task_id:
        return None
    scope["path_params"] = {"task_id": task_id}
    return STREAM


_ROUTES = (
    Route("/api/tasks", tasks.create, methods=["POST"]),
    Route("/api/tasks", tasks.index, methods=["GET"]),
    Route(TASK, tasks.show, methods=["GET"]),
    Route(TASK, tasks.delete, methods=["DELETE"]),
    Route(f"{TASK}/stream", STREAM, methods=["GET"]),
    Route("/api/stream", Slim(many.stream), methods=["GET"]),
    Route(f"{TASK}/input", asked.show, methods=["GET"]),
    Route("/api/titles", asked.titles, methods=["GET"]),
    Route(f"{TASK}/result", results.result, methods=["GET"]),
    Route(f"{TASK}/rendered", results.rendered, methods=["GET"]),
    Route(f"{TASK}/checkpoint", moves.checkpoint, methods=["GET"]),
    Route(f"{TASK}/history", moves.history, methods=["GET"]),
    Route(f"{TASK}/recover", moves.recover, methods=["POST"]),
    Route(f"{TASK}/pause", moves.pause, methods=["POST"]),
    Route(f"{TASK}/cancel", moves.cancel, methods=["POST"]),
    Route("/api/dead-letters", dead.index, methods=["GET"]),
    Route("/api/dead-letters/replay", dead.replay, methods=["POST"]),
    Route("/api/stats", operating.stats, methods=["GET"]),
    Route("/api/session", session.show, methods=["GET"]),
    Route("/api/session", session.sign_in, methods=["POST"]),
    Route("/api/session", session.sign_out, methods=["DELETE"]),
    Route("/api/openapi.json", openapi.show, methods=["GET"]),
    Route("/metrics", operating.prometheus, methods=["GET"]),
    Route("/healthz", health.alive, methods=["GET"]),
    Route("/readyz", health.ready, methods=["GET"]),
    Route("/favicon.ico", pages.favicon, methods=["GET"]),
    Route("/static/{path:path}", pages.static, methods=["GET"]),
    Route("/", pages.index, methods=["GET"]),
)


def _joined(routes: Sequence[Route]) -> Iterator[Route]:
    """One route for each address, so that a refusal of a method names all that there are."""
    by_path: dict[str, list[Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    for path, some in by_path.items():
        if len(some) == 1:
            yield some[0]
            continue
        endpoints = {method: route.endpoint for route in some for method in route.methods or ()}
        yield Route(path, partial(_choose, endpoints), methods=list(endpoints))


async def _choose(endpoints: Mapping[str, Endpoint], request: Request) -> Response:
    return await endpoints[request.method](request)


ROUTES = tuple(_joined(_ROUTES))
