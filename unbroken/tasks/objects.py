"""The object store: where checkpoints go that are too large for Redis. A local folder by default, S3, GCS or Azure by
URL, all through obstore.

Names are `<shard>/<task>/<epoch>-<seq>-<sha>`: unique for each save, so nothing is ever overwritten, and a zombie's
upload harms nobody: the pointer in Redis moves afterwards, under the fence."""

from __future__ import annotations

import asyncio
import logging
import re
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from unbroken.tasks import codec, spool
from unbroken.tasks.errors import Corrupt, UnbrokenError

if TYPE_CHECKING:
    from obstore.store import BackoffConfig, RetryConfig

log = logging.getLogger("unbroken.tasks.objects")
PART = 5 * 1024 * 1024  # the smallest part that S3 takes
# A run waits for its save, and a later one is as good: by itself the library would try for three minutes. One request
# may take its 30 s (AWS_TIMEOUT and the like say otherwise).
RETRY_S = 15.0
RETRIES = 4
_NAME = re.compile(r"^s\d{1,3}/(s\d{1,3}-[0-9a-z]{26})/(\d+)-(\d+)-([0-9a-f]{16})$", re.ASCII)


class Missing(UnbrokenError):
    """There is no such object."""


def name_of(task_id: str, epoch: str, seq: int, sha256: str) -> str:
    """The key of one checkpoint."""
    return f"{task_id.split('-', 1)[0]}/{task_id}/{epoch}-{seq}-{sha256[:16]}"


def task_of(name: str) -> str | None:
    """The task that a key belongs to, or None for a key that is not ours."""
    match = _NAME.match(name)
    return match.group(1) if match else None


def _open(url: str) -> ObjectStore:
    parsed = urlparse(url)
    if parsed.scheme == "file":
        return LocalStore(prefix=Path(unquote(parsed.path)), automatic_cleanup=True, mkdir=True)
    pauses: BackoffConfig = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2.0}
    retry: RetryConfig = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S), "backoff": pauses}
    return from_url(url, retry_config=retry)


def in_short(error: Exception) -> str:
    """What went wrong, in one line. The library's own words are many lines, with addresses that owners need not see."""
    if isinstance(error, BaseError):
        return f"the object store failed ({type(error).__name__})"
    return (str(error) or type(error).__name__).splitlines()[0][:300]


class Objects:
    """Opened at the first use: most tasks never need it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: ObjectStore | None = None

    @property
    def store(self) -> ObjectStore:
        """The store itself."""
        if self._store is None:
            self._store = _open(self._url)
        return self._store

    async def put(self, task_id: str, epoch: str, seq: int, sealed: codec.Sealed) -> str:
        """Write a checkpoint's bytes; returns their key. Raises what the store raises."""
        name = name_of(task_id, epoch, seq, sealed.sha256)
        await obstore.put_async(self.store, name, sealed.data)
        return name

    async def put_file(self, task_id: str, epoch: str, seq: int, sealed: codec.Sealed, path: Path) -> str:
        """The same from a file, in pieces."""
        name = name_of(task_id, epoch, seq, sealed.sha256)
        await obstore.put_async(self.store, name, path, chunk_size=PART, max_concurrency=2)
        return name

    async def load(self, name: str, sealed: codec.Sealed, *, schema: int, limit: int) -> dict[str, object]:
        """Read a state back, through a file. `sealed` says what the bytes must be; its data is empty.
        Raises Missing, Corrupt, and what the store raises."""
        if task_of(name) is None:
            raise Corrupt("the reference to the object is malformed")
        try:
            answer = await obstore.get_async(self.store, name)
        except FileNotFoundError as error:
            raise Missing("its bytes are gone from the object store") from error
        with tempfile.TemporaryDirectory(prefix="ub-state-") as folder:
            path = Path(folder) / "state"
            size = 0
            with path.open("wb") as file:
                async for piece in answer.stream(min_chunk_size=PART):
                    size += len(piece)
                    if size > limit:
                        raise Corrupt(f"more than the limit of {limit} bytes")
                    await asyncio.to_thread(file.write, piece)
            return await asyncio.to_thread(spool.read, path, sealed, schema=schema, limit=limit)

    async def archive(self, owner: str, task_id: str, media: str, body: bytes) -> None:
        """Keep a result beyond its time in Redis, as `results/<owner>/<task>.<media>` (txt or json)."""
        await obstore.put_async(self.store, f"results/{owner}/{task_id}.{media}", body)

    async def archived(self, owner: str, task_id: str) -> tuple[str, bytes] | None:
        """(media, body) of an archived result, or None. The owner is part of the name: nobody reads another's."""
        for media in ("txt", "json"):
            try:
                answer = await obstore.get_async(self.store, f"results/{owner}/{task_id}.{media}")
            except FileNotFoundError:
                continue
            return media, bytes(await answer.bytes_async())
        return None

    async def forget_archived(self, owner: str, task_id: str) -> bool:
        """Delete an archived result. False when there is none. Raises what the store raises."""
        found = False
        for media in ("txt", "json"):
            name = f"results/{owner}/{task_id}.{media}"
            try:
                await obstore.head_async(self.store, name)
            except FileNotFoundError:
                continue
            await obstore.delete_async(self.store, name)
            found = True
        return found

    async def discard(self, name: str) -> None:
        """Delete a checkpoint that nobody refers to. Never raises: what is left behind, orphans.collect finds later."""
        if task_of(name) is None:
            log.warning("%r is not the name of a checkpoint, not deleted", name[:200])
            return
        try:
            await obstore.delete_async(self.store, name)
        except Exception as error:
            log.info("object %s not deleted: %s", name, in_short(error))
