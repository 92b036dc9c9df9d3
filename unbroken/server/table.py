"""All addresses, in one place."""

from __future__ import annotations

from starlette.routing import Route

from unbroken.server.routes import health, stream, tasks

TASK = "/api/tasks/{task_id}"

ROUTES = (
    Route("/api/tasks", tasks.create, methods=["POST"]),
    Route("/api/tasks", tasks.index, methods=["GET"]),
    Route(TASK, tasks.show, methods=["GET"]),
    Route(TASK, tasks.delete, methods=["DELETE"]),
    Route(f"{TASK}/stream", stream.stream, methods=["GET"]),
    Route("/healthz", health.alive, methods=["GET"]),
    Route("/readyz", health.ready, methods=["GET"]),
)
