"""The store for one command on the server's machine. Where `up` is not running, its database is started for the
length of the command, so that a first key can be made before the first start."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from unbroken.cli import embedded, place
from unbroken.cli.place import CannotStart
from unbroken.cli.show import tell
from unbroken.cli.tether import command
from unbroken.tasks.errors import StoreRefuses, StoreUnavailable
from unbroken.tasks.settings import Settings

if TYPE_CHECKING:
    from unbroken.tasks.store import Store

NAMED = {"redis_url", "data_dir"}
START_S = 60.0  # a large append-only file takes its time to load


@asynccontextmanager
async def store_of(settings: Settings, *, make: bool = False) -> AsyncIterator[Store]:
    """The store that these settings mean. make: a data folder that was named gets a database where it has none. Which
    database it is, is said wherever nobody named it.

    Raises StoreUnavailable with where it was looked for, CannotStart where there is none."""
    from unbroken.tasks.connection import first_answer, translated
    from unbroken.tasks.store import open_store

    async with _database(settings, make=make) as final:
        if not NAMED & settings.model_fields_set:
            tell(f"The database is {final.redis_shown}.")
        store = open_store(final, name="unbroken-cli")
        try:
            async with first_answer():
                with translated():
                    await store.redis.ping()
            yield store
        except StoreRefuses as error:
            raise StoreRefuses(f"{error} at {final.redis_shown}; see --redis-url and UNBROKEN_REDIS_URL") from None
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{error} at {final.redis_shown}; name another with --redis-url or --data-dir"
            ) from None
        finally:
            await store.close()


@asynccontextmanager
async def _database(settings: Settings, *, make: bool) -> AsyncIterator[Settings]:
    if "redis_url" in settings.model_fields_set:
        yield settings
        return
    known = embedded.find(settings.data_dir) is not None
    if make and not known and "data_dir" not in settings.model_fields_set:
        # somewhere else than where `up` runs: what is made here would never be seen there
        raise CannotStart(
            f"there is no database in {settings.data_dir.expanduser().resolve()}; name the data folder of "
            "`unbroken up` with --data-dir (it is made where it does not exist), or a Redis with --redis-url"
        )
    if not known and not make:
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
        async with _started(embedded.prepare(folder), lock) as url:
            yield settings.model_copy(update={"redis_url": url})
    finally:
        lock.release()


@asynccontextmanager
async def _started(database: embedded.Embedded, lock: place.Lock) -> AsyncIterator[str]:
    log = database.folder / "valkey.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command(os.getpid(), [str(embedded.binary()), str(database.config)]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            pass_fds=(lock.fd,),
            start_new_session=True,
        )
    try:
        await _wait(database, process)
        yield database.url
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _wait(database: embedded.Embedded, process: asyncio.subprocess.Process) -> None:
    import redis

    deadline = time.monotonic() + START_S
    while process.returncode is None and time.monotonic() < deadline:
        try:
            with redis.Redis.from_url(database.url, socket_timeout=5) as client:
                client.ping()
                return
        except redis.RedisError:  # not yet there, or still loading
            await asyncio.sleep(0.02)
    raise CannotStart(f"the database in {database.folder} does not start; see {database.folder / 'valkey.log'}")
