"""What the private database acknowledged is in the kernel's hands, and on the disk a second later."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import redis

from tests.support.valkey import Valkey
from tests.support.wait import until_sync
from unbroken.cli import embedded
from unbroken.cli.syncing import Syncing, syncing


def test_what_changed_is_synced_once(tmp_path: Path) -> None:
    files = Syncing(tmp_path)
    assert files.step() == 0, "there is nothing yet"
    (tmp_path / "appendonlydir").mkdir()
    log = tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof"
    log.write_bytes(b"one")
    assert (files.step(), files.step()) == (1, 0)
    log.write_bytes(b"one two")
    assert (files.step(), files.step()) == (1, 0)
    log.unlink()
    log.write_bytes(b"one two")
    assert files.step() <= 1


def test_the_file_of_a_real_database_goes_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real, calls = os.fdatasync, threading.Lock()

    def counted(fd: int) -> None:
        real(fd)
        with calls:
            synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr("unbroken.cli.syncing.os.fdatasync", counted)
    with Valkey(aof=True, options={"appendfsync": "no"}) as valkey, syncing(valkey.folder):
        client = redis.Redis.from_url(valkey.url)
        client.set("key", "x" * 10_000)
        until_sync(lambda: synced and synced[-1] > 10_000, "the write to be synced")
        client.close()


def test_the_database_writes_before_it_answers(tmp_path: Path) -> None:
    """`everysec` would not while its fsync runs."""
    made = embedded.prepare(tmp_path)
    assert "appendfsync no\n" in made.config.read_text()
