"""Run the server: one process, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from typing import NoReturn

import uvicorn
from starlette.applications import Starlette

from unbroken.server import guards
from unbroken.server.app import create_app
from unbroken.server.lifecycle import DRAIN_S
from unbroken.server.protocol import Protocol
from unbroken.tasks.logs import log_to_stderr
from unbroken.tasks.settings import Settings

GRACE_S = int(DRAIN_S) + 5  # after which requests that still run are cancelled


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises BadSetting when it may not start like this."""
    log_to_stderr(settings.log_level)
    # uvicorn sends the signal that ended it once more when all is done: an ordered end is no failure
    signal.signal(signal.SIGTERM, _leave)
    asyncio.run(guards.check(settings))
    Server(config(settings, create_app(settings))).run()


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


class Server(uvicorn.Server):
    """Once everything is loaded, what is loaded is not looked at by the garbage collector any more."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then freeze."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # thousands of viewers are many objects and no garbage


def config(settings: Settings, app: Starlette) -> uvicorn.Config:
    """How uvicorn serves us. No access log: paths and addresses are nobody's business by default."""
    return uvicorn.Config(
        app,
        host=settings.host.strip("[]"),
        port=settings.port,
        loop="uvloop",
        http=Protocol,
        ws="none",
        interface="asgi3",  # not to be guessed: the application is no coroutine function (see App)
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=True,
        backlog=4_096,
        proxy_headers=True,
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=GRACE_S,
    )
