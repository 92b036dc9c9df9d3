"""Other queues at the same work: jobs that do nothing. Runs alone in a throw-away environment of its library.

python others.py LIBRARY submit URL COUNT -          put COUNT jobs into the queue
python others.py LIBRARY work URL CONCURRENCY FILE   work until killed; each job adds one byte to FILE"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from typing import Any
from urllib.parse import urlparse

AT_ONCE = 100
_file = -1


async def job(ctx: object = None) -> None:
    """Nothing, and a sign that it was done."""
    os.write(_file, b"x")


async def arq_submit(url: str, count: int) -> None:
    """arq: a sorted set of ids, taken by WATCH/MULTI; at least once, a lost job comes back when its timeout is over."""
    arq: Any = importlib.import_module("arq.connections")
    pool = await arq.create_pool(_arq_settings(url))
    for at in range(0, count, AT_ONCE):
        await asyncio.gather(*(pool.enqueue_job("job") for _ in range(min(AT_ONCE, count - at))))
    await pool.aclose()


def _arq_settings(url: str) -> Any:
    arq: Any = importlib.import_module("arq.connections")
    return arq.RedisSettings(host="127.0.0.1", port=urlparse(url).port)


def arq_work(url: str, concurrency: int) -> None:
    """Polls; as often as makes sense here, since half a second (the default) would be all that is measured."""
    worker: Any = importlib.import_module("arq.worker")
    worker.Worker(
        [job], redis_settings=_arq_settings(url), max_jobs=concurrency, poll_delay=0.005, log_results=False
    ).run()


async def saq_submit(url: str, count: int) -> None:
    """SAQ: a list, taken by BLMOVE; at least once, a sweeper finds what a lost worker held."""
    saq: Any = importlib.import_module("saq")
    queue = saq.Queue.from_url(url)
    await queue.connect()
    for at in range(0, count, AT_ONCE):
        await asyncio.gather(*(queue.enqueue("job") for _ in range(min(AT_ONCE, count - at))))
    await queue.disconnect()


def saq_work(url: str, concurrency: int) -> None:
    """Until killed."""
    saq: Any = importlib.import_module("saq")
    asyncio.run(saq.Worker(saq.Queue.from_url(url), functions=[("job", job)], concurrency=concurrency).start())


def _streaq_worker(url: str, concurrency: int) -> tuple[Any, Any]:
    streaq: Any = importlib.import_module("streaq")
    worker = streaq.Worker(redis_url=url, concurrency=concurrency)

    async def nothing() -> None:
        await job()

    return worker, worker.task(name="job")(nothing)


async def streaq_submit(url: str, count: int) -> None:
    """streaQ: a stream and a consumer group; at least once, the group's idle time finds what a lost worker held."""
    worker, task = _streaq_worker(url, 1)
    async with worker:
        for at in range(0, count, AT_ONCE):
            await worker.enqueue_many([task.enqueue() for _ in range(min(AT_ONCE, count - at))])


def streaq_work(url: str, concurrency: int) -> None:
    """Until killed."""
    _streaq_worker(url, concurrency)[0].run_sync()


def main() -> None:
    """See the head of this file."""
    global _file
    library, what, url, count, file = sys.argv[1:]
    if what == "submit":
        asyncio.run(globals()[f"{library}_submit"](url, int(count)))
        return
    _file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    globals()[f"{library}_work"](url, int(count))


if __name__ == "__main__":
    main()
