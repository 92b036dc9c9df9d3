"""Real processes of the product for a test: a Valkey of its own, servers, workers; or a whole `unbroken up`.

    async with Stack(workers=2) as stack:
        task = await stack.api.submit(scripted(tokens=500, rate=100))
        stack.workers[0].kill()

Everything dies with the test run. When the block is left by an exception, the end of every log is printed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import httpx

from tests.support.api import Api
from tests.support.valkey import Valkey
from tests.support.wait import until
from unbroken.cli.tether import command

LEASE_S = 2.0


def free_port() -> int:
    """A loopback port that nobody listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def environment(**settings: object) -> dict[str, str]:
    """Our own environment without anybody's settings, and these: `lease_s=2` is UNBROKEN_LEASE_S=2."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("UNBROKEN_")}
    env["PYTHONUNBUFFERED"] = "1"
    return env | {f"UNBROKEN_{name.upper()}": str(value) for name, value in settings.items()}


class Process:
    """One process with its log. Signals go to it by its id."""

    def __init__(self, name: str, argv: Sequence[str], env: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command(os.getpid(), [sys.executable, *argv]),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        """Has it not ended?"""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """How it ended."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Any signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP: alive for the system, silent for everybody else."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    async def stop(self, *, within: float = 60) -> int:
        """SIGTERM, and its exit code. Raises TimeoutError when it does not go."""
        self.send(signal.SIGTERM)
        await until(lambda: not self.alive, f"{self.name} to stop", within=within)
        return self._process.wait()

    def tail(self, lines: int = 40) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Stack:
    """Servers and workers around one Valkey.

    settings: more UNBROKEN_* settings by their lower-case names, such as `lease_s=5`. redis_url: what servers and
    workers use, when it is not the Valkey directly (a proxy)."""

    def __init__(
        self,
        *,
        servers: int = 1,
        workers: int = 1,
        redis_url: str | None = None,
        valkey: Valkey | None = None,
        **settings: object,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ub-stack-"))
        self.valkey = valkey or Valkey(aof=True)
        self._own_valkey = valkey is None
        self.redis_url = redis_url or self.valkey.url
        self.settings: dict[str, object] = {
            "backend": "scripted",
            "lease_s": LEASE_S,
            "submits_per_minute": 0,
            "data_dir": self.folder / "data",
            **settings,
        }
        self._count = (servers, workers)
        self._started = 0
        self.servers: list[Process] = []
        self.workers: list[Process] = []
        self.urls: list[str] = []
        self._apis: list[Api] = []

    @property
    def url(self) -> str:
        """The first server."""
        return self.urls[0]

    @property
    def api(self) -> Api:
        """A client of the first server."""
        return self._apis[0]

    def api_of(self, server: int) -> Api:
        """A client of another server."""
        return self._apis[server]

    def _start(self, role: str, **settings: object) -> Process:
        self._started += 1
        name = f"{role}-{self._started}"
        env = environment(**{**self.settings, "redis_url": self.redis_url, **settings})
        return Process(name, ["-P", "-m", "unbroken", role], env, self.folder / f"{name}.log")

    async def start_server(self, number: int | None = None, **settings: object) -> Process:
        """One more server; with a number, that one again at its old address. Waits until it is ready."""
        if number is None:
            number = len(self.urls)
            self.urls.append(f"http://127.0.0.1:{free_port()}")
            self._apis.append(Api(self.urls[number]))
        url = self.urls[number]
        server = self._start("server", port=url.rpartition(":")[2], **settings)
        self.servers[number : number + 1] = [server]
        await until(lambda: self._ready(server, url), f"{server.name} to be ready")
        return server

    async def _ready(self, server: Process, url: str) -> bool:
        if not server.alive:
            raise RuntimeError(f"{server.name} ended with {server.returncode}:\n{server.tail()}")
        try:
            async with httpx.AsyncClient(timeout=5) as client:
                return (await client.get(f"{url}/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def start_worker(self, **settings: object) -> Process:
        """One more worker. It takes tasks as soon as it is up; wait for what it does."""
        worker = self._start("worker", **settings)
        self.workers.append(worker)
        return worker

    def kill_workers(self) -> None:
        """kill -9 for all of them."""
        for worker in self.workers:
            worker.kill()
        self.workers.clear()

    async def __aenter__(self) -> Stack:
        try:
            if self._own_valkey:
                await asyncio.to_thread(self.valkey.start)
            servers, workers = self._count
            await asyncio.gather(*(self.start_server() for _ in range(servers)))
            for _ in range(workers):
                await self.start_worker()
        except BaseException:
            print(self.logs())
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(self.logs())
        await self.close()

    def logs(self) -> str:
        """The end of every log, for a test that failed."""
        tails = [(log.name, log.read_text(errors="replace")) for log in sorted(self.folder.glob("*.log"))]
        return "\n".join(f"---- {name}\n" + "\n".join(text.splitlines()[-40:]) for name, text in tails)

    async def close(self) -> None:
        """Stop and remove everything."""
        for process in (*self.workers, *self.servers):
            process.kill()
        for api in self._apis:
            await api.close()
        if self._own_valkey:
            self.valkey.close()
        shutil.rmtree(self.folder, ignore_errors=True)
