"""The application: routes, and what surrounds all of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, cast

from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unbroken.server import lifecycle, wire
from unbroken.server.context import Services
from unbroken.server.problems import from_exception
from unbroken.server.routes import pages
from unbroken.server.table import ROUTES, direct
from unbroken.tasks import registry
from unbroken.tasks.settings import Settings

log = logging.getLogger("unbroken.server")


class Guard:
    """Around the routes: every error becomes a problem document, and nothing of it but that leaves the server."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began = 0

        async def watched(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = message["status"]
            await send(message)

        try:
            await (direct(scope) or self.app)(scope, receive, watched)
        except Exception as error:
            problem = from_exception(error)
            if began:
                # Half an answer is out; cutting the connection is the only honest end.
                log.warning("an answer broke off: %s", type(error).__name__)
                raise
            began = problem.status
            await (pages.lost(scope, problem.status) or problem.response())(scope, receive, send)
        finally:
            services: Services | None = getattr(scope["app"].state, "services", None)
            if services is not None and began:
                services.answers[scope["method"], began] += 1
        return None


class App(Starlette):
    """Starlette with one layer instead of its three around the routes."""

    def build_middleware_stack(self) -> ASGIApp:
        """Only the guard."""
        return Guard(self.router)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """ASGI. Keeps the server's own `send` for streams. Not a coroutine itself: each of those between the server and
        a stream costs a quarter of a kilobyte for as long as somebody watches."""
        scope[wire.SEND] = send
        scope["app"] = self
        if scope.get("http_version") == "1.0":
            send = wire.until_close(send)
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        return cast(Coroutine[Any, Any, None], self.middleware_stack(scope, receive, send))


def create_app(settings: Settings) -> Starlette:
    """An application; nothing is connected before it is started. Raises BadKind for kinds that do not load."""
    known = registry.specs(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with lifecycle.running(settings, known) as services:
            app.state.services = services
            app.state.stop = services.stop
            yield

    app = App(routes=list(ROUTES), lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.settings = settings
    return app
