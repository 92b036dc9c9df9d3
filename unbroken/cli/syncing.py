"""Once a second the private database's file goes to the disk.

Valkey's own way, `appendfsync everysec`, answers first and writes later while its fsync runs: a process that is killed
just then loses what it has acknowledged. With `appendfsync no` it always writes before it answers, so that a killed
process loses nothing (G5), and the disk is looked after from here: a machine that loses power may lose a second."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EVERY_S = 1.0


class Syncing:
    """Brings the append-only files of a database's folder to the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "appendonlydir"
        self._seen: dict[Path, tuple[int, int]] = {}

    def step(self) -> int:
        """Sync what has changed since the last step. Returns how many files that were. Raises OSError of the disk."""
        synced = 0
        for path in self._folder.glob("*.aof"):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # rewritten meanwhile
                continue
            try:
                state = os.fstat(fd)
                # looked at before the sync: what is written during it counts as a change at the next step
                if self._seen.get(path) != (state.st_ino, state.st_size):
                    os.fdatasync(fd)
                    self._seen[path] = (state.st_ino, state.st_size)
                    synced += 1
            finally:
                os.close(fd)
        return synced


@contextmanager
def syncing(folder: Path) -> Iterator[None]:
    """Sync every second while the block runs. A disk that refuses is told by the database itself at its next write."""
    ended = threading.Event()

    def work() -> None:
        files = Syncing(folder)
        while not ended.wait(EVERY_S):
            try:
                files.step()
            except OSError:
                continue

    thread = threading.Thread(target=work, name="sync", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(EVERY_S)
