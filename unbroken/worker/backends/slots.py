"""llama.cpp's slots, shared fairly and safely by several worker processes, and the files their state is
saved in.

A slot belongs to whoever holds the lock on `<slot_dir>/slot-<n>.lock` (flock). The kernel releases it when
a worker is killed, and it excludes other calls of the same process too, since each opens the file anew."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import importlib.metadata
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from unbroken.tasks.errors import Permanent, Transient
from unbroken.worker.backends.llama_client import About, LlamaClient

ANY = -1  # "the server may choose"; then there is no state to save
_POLL_S = 0.02
_PATIENCE_S = 60.0  # below the usual wait for a first token
_STALE_S = 600.0  # slot files live for milliseconds; older ones were left by a killed worker
_MAGIC = b"UBSLOT1\n"
_HEAD = len(_MAGIC) + 16 + 32


class Slots:
    """The slots of one server. `folder` must be the folder the server saves slots in; None: no state, no
    locks.

    state_max: bytes above which a state is not kept; the token ids are, always."""

    def __init__(self, client: LlamaClient, folder: Path | None, *, state_max: int) -> None:
        self._client = client
        self._folder = folder
        self._state_max = state_max
        self._refused: set[bytes] = set()

    def prepare(self) -> None:
        """Make the folder and remove files that killed workers left."""
        if self._folder is None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in self._folder.glob("ub-*.bin"):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > _STALE_S:
                    file.unlink()

    @asynccontextmanager
    async def lease(self, count: int) -> AsyncIterator[int]:
        """A slot of our own out of `count`, waiting until one is free.

        After a minute ANY: the holders may be stopped processes. Sharing is slower, since texts push each other
        out of the cache, and still correct, since a state is compared with its text before it is kept."""
        if self._folder is None:
            yield ANY
            return
        # Everyone starts looking at another place, so that a slot's cached text is not always the first
        # victim.
        first = secrets.randbelow(count)
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for number in ((first + k) % count for k in range(count)):
                lock = _try_lock(self._folder / f"slot-{number}.lock")
                if lock is None:
                    continue
                try:
                    yield number
                finally:
                    os.close(lock)  # closing releases the lock
                return
            await asyncio.sleep(_POLL_S)
        yield ANY

    async def save(self, slot: int, about: About, ids: Sequence[int]) -> bytes:
        """The slot's state in an envelope, or b"" when there is none to be had: a state is only ever a
        shortcut."""
        if self._folder is None or slot == ANY:
            return b""
        file = self._file()
        try:
            await self._client.save(slot, file.name)
            raw = await asyncio.to_thread(_read, file, self._state_max)
        except (Permanent, Transient, OSError):
            return b""
        finally:
            file.unlink(missing_ok=True)
        # The file lists the tokens it is the state of. The newest token is not computed yet, so it may be
        # missing. Looked for as bytes, not parsed: the numbers around the list differ between versions.
        if not raw or _packed(ids[:-1]) not in raw[: 4 * len(ids) + 4_096]:
            return b""
        return await asyncio.to_thread(_seal, raw, about)

    async def restore(self, slot: int, about: About, state: bytes | None) -> bool:
        """Put a saved state into the slot. False when it cannot be used, which costs time and nothing else.

        Only a state with its digest intact, from the same model and version, ever reaches the server: a
        broken file aborts its whole process (seen with one that was cut short)."""
        if self._folder is None or slot == ANY or not state or len(state) <= _HEAD:
            return False
        digest = state[len(_MAGIC) + 16 : _HEAD]
        if not state.startswith(_MAGIC + _fingerprint(about)) or digest in self._refused:
            return False
        file = self._file()
        try:
            if not await asyncio.to_thread(_unseal, state, file):
                return False
            await self._client.restore(slot, file.name)
        except (Permanent, Transient, OSError):
            self._refused.add(digest)  # a second try might take the server down a second time
            return False
        finally:
            file.unlink(missing_ok=True)
        return True

    def _file(self) -> Path:
        assert self._folder is not None
        return self._folder / f"ub-{secrets.token_hex(12)}.bin"


def _try_lock(path: Path) -> int | None:
    """An open descriptor that holds the lock, or None when somebody else has it."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        return None
    return opened


def _packed(ids: Sequence[int]) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in ids)


def _read(file: Path, limit: int) -> bytes:
    return file.read_bytes() if file.stat().st_size <= limit else b""


def _fingerprint(about: About) -> bytes:
    """Which model and version a state belongs to; 16 bytes."""
    what = {"model": about.model, "version": importlib.metadata.version("xllamacpp")}
    return hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=16).digest()


def _seal(raw: bytes, about: About) -> bytes:
    return _MAGIC + _fingerprint(about) + hashlib.sha256(raw).digest() + raw


def _unseal(state: bytes, file: Path) -> bool:
    """Write the state's bytes to `file` when they are what was saved."""
    raw = memoryview(state)[_HEAD:]
    if hashlib.sha256(raw).digest() != state[_HEAD - 32 : _HEAD]:
        return False
    file.write_bytes(raw)
    return True
