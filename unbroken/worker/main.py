"""The worker process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading

import uvloop

from unbroken.tasks.keeping import check_keeping_once
from unbroken.tasks.logs import log_to_stderr
from unbroken.tasks.settings import Settings, load
from unbroken.worker.backends import make_backend
from unbroken.worker.consumer import Consumer
from unbroken.worker.kinds.registry import load_kinds

log = logging.getLogger("unbroken.worker")


def work(settings: Settings) -> None:
    """Run tasks until SIGTERM or SIGINT, then hand over what runs and return. Blocking.

    Raises UnbrokenError for a kind that cannot be loaded, a backend that cannot start, or a Redis that may evict."""
    log_to_stderr(settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        stuck = loop.run(_work(settings))
        if stuck or threading.active_count() > 1:
            # A kind swallows its cancellation, or a thread will not end: neither may keep the process.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


async def _work(settings: Settings) -> bool:
    """Returns whether something is left that does not end."""
    kinds = load_kinds(settings)
    await check_keeping_once(settings, name="unbroken-worker-check")
    backend = make_backend(settings)
    await backend.start()
    consumer = Consumer(settings, backend, kinds)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, consumer.stop)
    # What lives now lives for ever: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    await consumer.run()
    try:
        async with asyncio.timeout(2):
            await backend.close()
    except Exception as error:
        log.info("backend not closed: %r", error)
    return len(asyncio.all_tasks()) > 1


if __name__ == "__main__":
    work(load())
