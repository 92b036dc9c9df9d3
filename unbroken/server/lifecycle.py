"""Start and stop of everything that runs beside the requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse
from sse_starlette.sse import AppStatus

from unbroken.server.callbacks import Callbacks
from unbroken.server.context import Services, Streams
from unbroken.server.doorkeeper import Doorkeeper
from unbroken.server.hub import Hub
from unbroken.server.loops import Collector, Mender, Reaper, Sweeper
from unbroken.server.records import Records
from unbroken.server.replay import Replayer
from unbroken.tasks.access import Access
from unbroken.tasks.objects import Objects
from unbroken.tasks.registry import Spec
from unbroken.tasks.settings import Settings
from unbroken.tasks.store import open_store

log = logging.getLogger("unbroken.server")
DRAIN_S = 5.0  # over which streams are closed at shutdown, so that viewers do not come back all at once


@contextlib.asynccontextmanager
async def running(settings: Settings, kinds: dict[str, Spec]) -> AsyncIterator[Services]:
    """Everything between the start and the end of an application."""
    AppStatus.should_exit = False  # left behind by an earlier server in this process
    store = open_store(settings, name="unbroken-server")
    hub = Hub(store, ring=settings.viewer_buffer, heartbeat_s=settings.heartbeat_s)
    services = Services(
        settings=settings,
        store=store,
        hub=hub,
        records=Records(store),
        replayer=Replayer(store),
        access=Access(store),
        kinds=kinds,
        streams=Streams(settings.streams_per_owner),
        objects=Objects(settings.objects),
    )
    callbacks = Callbacks(services)
    loops = [
        Reaper(services),
        Sweeper(services),
        Mender(services),
        Collector(services),
        Doorkeeper(services),
        callbacks,
    ]
    services.loops = [*loops]
    tasks = [
        *hub.start(),
        *(asyncio.create_task(loop.run(), name=loop.name) for loop in loops),
        asyncio.create_task(_drain_at_exit(services), name="drain"),
    ]
    try:
        yield services
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await callbacks.close()
        await store.close()


async def _drain_at_exit(services: Services) -> None:
    """The library's own watch for the server's end, once for all streams instead of once for each; or our own word."""
    hub = services.hub
    ways = [
        asyncio.create_task(EventSourceResponse._listen_for_exit_signal()),
        asyncio.create_task(services.stopping.wait()),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
    log.info("shutting down: %d streams are told to go elsewhere", len(hub.watchers))
    await hub.drain(DRAIN_S)
