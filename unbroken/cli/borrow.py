"""The store for one command on the server's machine. Where `up` is not running, its database is started for the
length of the command, so that a first key can be made before the first start."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from unbroken.cli import embedded, place
from unbroken.cli.place import CannotStart
from unbroken.cli.tether import command
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.settings import Settings

if TYPE_CHECKING:
    from unbroken.tasks.store import Store

START_S = 60.0  # a large append-only file takes its time to load


@asynccontextmanager
async def store_of(settings: Settings, *, make: bool = False) -> AsyncIterator[Store]:
    """The store that these settings mean. make: a data folder without a database gets one.

    Raises StoreUnavailable with where it was looked for."""
    from unbroken.cli.up import without_password
    from unbroken.tasks.store import open_store

    with _database(settings, make=make) as final:
        store = open_store(final, name="unbroken-cli")
        try:
            yield store
        except StoreUnavailable as error:
            where = without_password(final.redis_url)
            raise StoreUnavailable(f"{error} at {where}; name another with --redis-url or --data-dir") from None
        finally:
            await store.close()


@contextmanager
def _database(settings: Settings, *, make: bool) -> Iterator[Settings]:
    if "redis_url" in settings.model_fields_set:
        yield settings
        return
    if embedded.find(settings.data_dir) is None and not make:
        yield settings  # nothing private here: the settings' own address, as `unbroken server` would use it
        return
    folder = place.prepare(settings.data_dir)
    try:
        lock = place.Lock.take(folder, patience_s=2)
    except CannotStart:  # `up` has it running
        found = embedded.find(folder)
        if found is None:
            raise
        yield settings.model_copy(update={"redis_url": found.url})
        return
    try:
        with _started(embedded.prepare(folder), lock) as url:
            yield settings.model_copy(update={"redis_url": url})
    finally:
        lock.release()


@contextmanager
def _started(database: embedded.Embedded, lock: place.Lock) -> Iterator[str]:
    log = database.folder / "valkey.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(os.getpid(), [str(embedded.binary()), str(database.config)]),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            pass_fds=(lock.fd,),
            start_new_session=True,
        )
    try:
        _wait(database, process)
        yield database.url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_S)


def _wait(database: embedded.Embedded, process: subprocess.Popen[bytes]) -> None:
    import redis

    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with redis.Redis.from_url(database.url, socket_timeout=5) as client:
                client.ping()
                return
        except redis.RedisError:  # not yet there, or still loading
            time.sleep(0.02)
    raise CannotStart(f"the database in {database.folder} does not start; see {database.folder / 'valkey.log'}")
