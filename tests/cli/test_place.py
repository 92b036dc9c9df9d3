"""The data folder: one `up` at a time, and errors that say what to do."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from unbroken.cli import embedded, place
from unbroken.cli.place import CannotStart, Lock
from unbroken.cli.up import without_password


def test_a_second_one_is_refused_and_told_where_the_first_is(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path)
    place.write_running(tmp_path, {"url": "http://127.0.0.1:8080"})
    with pytest.raises(CannotStart, match=r"already running at http://127.0.0.1:8080 .*--data-dir"):
        Lock.take(tmp_path)
    lock.release()
    Lock.take(tmp_path).release()


def test_the_folder_stays_locked_while_a_dead_ones_database_lives(tmp_path: Path) -> None:
    """The holder was killed; its Valkey has the descriptor and needs a moment to go."""
    holder = f"""
import subprocess, sys, pathlib
from unbroken.cli.place import Lock
lock = Lock.take(pathlib.Path({str(tmp_path)!r}))
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=(lock.fd,), stdin=0)
print(child.pid, flush=True)
"""
    dead = subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert dead.stdin is not None
    assert dead.stdout is not None
    assert dead.stdout.readline().strip().isdigit()
    dead.wait()
    with pytest.raises(CannotStart):
        Lock.take(tmp_path, patience_s=0.3)
    dead.stdin.close()  # the "database" ends
    Lock.take(tmp_path).release()
    dead.stdout.close()


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=rf"port {port} on 127.0.0.1 is in use.*--port"):
            place.choose_port("127.0.0.1", port)


def test_port_zero_finds_a_free_one() -> None:
    port = place.choose_port("127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_an_address_that_is_not_ours_is_said() -> None:
    with pytest.raises(CannotStart, match=r"203\.0\.113\.7"):
        place.choose_port("203.0.113.7", 0)


def test_a_data_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="data folder"):
        place.prepare(tmp_path / "file")


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("example.org", "http://example.org:80"),
    ],
)
def test_the_address_can_be_opened_as_it_is_shown(host: str, shown: str) -> None:
    assert place.address(host, 80) == shown


def test_the_database_is_private_and_keeps_its_password(tmp_path: Path) -> None:
    first = embedded.prepare(place.prepare(tmp_path / "data"))
    again = embedded.prepare(tmp_path / "data")
    assert first == again == embedded.find(tmp_path / "data")
    assert len(first.password) >= 32
    for secret in (first.folder / "password", first.config):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.folder.stat().st_mode) == 0o700
    assert "port 0\n" in first.config.read_text()


def test_a_folder_with_a_long_path_gets_a_socket_that_the_kernel_takes(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    made = embedded.prepare(place.prepare(deep))
    try:
        assert len(os.fsencode(made.socket)) <= embedded.SOCKET_PATH_MAX
        assert embedded.find(deep) == made
    finally:
        made.socket.parent.rmdir()


def test_urls_are_shown_without_their_password() -> None:
    assert without_password("rediss://user:secret@redis.example:6380/1") == "rediss://redis.example:6380/1"
    assert without_password("unix://:secret@/run/v.sock") == "unix:///run/v.sock"
