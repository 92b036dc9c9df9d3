"""Where `unbroken up` runs: its data folder, the lock on it, its address.

Layout of a data folder:

    up.lock       held while `up` or its Valkey lives; names the process
    run.json      the address of the running server, so that other commands find it
    valkey/       database: password, configuration, append-only file, socket
    slots/        saved states of the local model
    objects/      large checkpoints and archives
    logs/         output of every part
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.tasks.errors import UnbrokenError

EVERYWHERE = ("0.0.0.0", "", "::")  # noqa: S104


class CannotStart(UnbrokenError):
    """`up` cannot run here; the message says why and what to do."""


def prepare(folder: Path) -> Path:
    """Make the data folder (private to this user) and return its absolute path. Raises CannotStart."""
    folder = folder.expanduser().resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "logs").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CannotStart(f"cannot use the data folder {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CannotStart(f"cannot write in the data folder {folder}")
    return folder


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass
class Lock:
    """The right to run in a data folder. Valkey inherits the descriptor: after `up` was killed with -9, the
    folder stays locked until its database is really gone, so two of them never write one append-only file."""

    fd: int

    @classmethod
    def take(cls, folder: Path, *, patience_s: float = 5.0) -> Lock:
        """Take the lock. Raises CannotStart when another `up` lives; waits a little for the remains of a dead
        one."""
        fd = os.open(folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
                alive = not holder.isdigit() or _alive(int(holder))
                # Even a living holder gets a moment: it may be ending right now.
                if time.monotonic() - began > (0.5 if alive else patience_s):
                    os.close(fd)
                    raise CannotStart(_occupied(folder, holder)) from None
                time.sleep(0.05)
            else:
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                return cls(fd)

    def release(self) -> None:
        """Give the folder back."""
        os.close(self.fd)


def _occupied(folder: Path, holder: str) -> str:
    at = running(folder).get("url")
    where = f" at {at}" if at else ""
    who = f" (process {holder})" if holder else ""
    return (
        f"unbroken is already running{where} with the data folder {folder}{who}; "
        "stop it first, or choose another folder with --data-dir"
    )


def write_running(folder: Path, facts: dict[str, Any]) -> None:
    """Tell other commands where the server is. Written whole or not at all."""
    new = folder / "run.json.new"
    new.write_text(json.dumps(facts), encoding="utf-8")
    new.chmod(0o600)
    new.replace(folder / "run.json")


def running(folder: Path) -> dict[str, Any]:
    """What `write_running` wrote last, or {}."""
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def forget_running(folder: Path) -> None:
    """The server has stopped."""
    (folder / "run.json").unlink(missing_ok=True)


def choose_port(host: str, port: int) -> int:
    """Check that the server will be able to listen; 0 picks a free port. Raises CannotStart with the
    reason."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotStart(f"cannot find the address {host}: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        # As the server does it: connections of a server that just ended must not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            raise CannotStart(_why_not(host, port, error)) from None
        return int(probe.getsockname()[1])


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop what uses it, or choose another with --port (0 finds one)"
    if error.errno == errno.EACCES:
        return f"not allowed to listen on port {port}; choose one above 1023 with --port"
    return f"cannot listen on {host} port {port}: {error.strerror}"


def address(host: str, port: int) -> str:
    """The page's address, as a person on this machine would type it."""
    shown = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    if ":" in shown and not shown.startswith("["):
        shown = f"[{shown}]"
    return f"http://{shown}:{port}"


def from_outside(host: str, port: int) -> str | None:
    """The same for a person on another machine; None where nobody there can reach it, or how cannot be told."""
    if host not in EVERYWHERE:
        return None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:  # which address would be used towards others; nothing is sent, and nobody lives there (RFC 5737, 3849)
            probe.connect(("2001:db8::1" if ":" in host else "192.0.2.1", 9))
            found = str(probe.getsockname()[0])
        except OSError:
            return None
    return None if found.startswith("127.") or found == "::1" else address(found, port)
