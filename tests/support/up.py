"""A whole `unbroken up`, as a person starts it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import psutil

from tests.support.api import Api
from tests.support.processes import environment
from tests.support.wait import until
from unbroken.cli.tether import command

READY = re.compile(r"^Unbroken is ready: (http://\S+)$", re.MULTILINE)


class Up:
    """Started with --port 0 in a data folder of its own. Use as an async context manager."""

    def __init__(
        self, *arguments: str, backend: str = "scripted", folder: Path | None = None, **settings: object
    ) -> None:
        self._own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="ub-up-"))
        self.env = environment(**{"lease_s": 2, "submits_per_minute": 0, **settings})
        self.arguments = ["--backend", backend, "--data-dir", str(self.folder), *arguments]
        if "--port" not in arguments:
            self.arguments += ["--port", "0"]
        self.out = self.folder / "stdout"
        self.err = self.folder / "stderr"
        self.url = ""
        self.seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._api: Api | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor."""
        assert self._process is not None
        return self._process

    @property
    def api(self) -> Api:
        """A client of its server."""
        assert self._api is not None
        return self._api

    async def start(self, *, within: float = 60) -> Up:
        """Start it and wait for its line."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._process = subprocess.Popen(
                command(os.getpid(), [sys.executable, "-m", "unbroken", "up", *self.arguments]),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        line = await until(self._line, "the line with the address", within=within)
        self.seconds = loop.time() - began
        self.url = line[1]
        self._api = Api(self.url)
        return self

    def _line(self) -> re.Match[str] | None:
        if self.process.poll() is not None:
            raise RuntimeError(f"up ended with {self.process.returncode}: {self.err.read_text()}")
        return READY.search(self.out.read_text())

    def parts(self, what: str) -> list[psutil.Process]:
        """The living processes of a part, found as `pkill -f` finds them: `unbroken worker`, `valkey-server`."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            try:
                if what in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return found

    def kill(self, what: str) -> int:
        """kill -9 for all processes of a part; how many there were."""
        found = self.parts(what)
        for process in found:
            process.kill()
        return len(found)

    async def until_parts(self, what: str, count: int) -> list[psutil.Process]:
        """Wait until so many of them live."""
        await until(lambda: len(self.parts(what)) == count, f"{count} of {what!r}")
        return self.parts(what)

    def cli(self, *arguments: str) -> list[str]:
        """The command line of another command, for this server."""
        return [sys.executable, "-m", "unbroken", *arguments]

    @property
    def cli_env(self) -> dict[str, str]:
        """The environment in which other commands find this server by its data folder."""
        return self.env | {"UNBROKEN_DATA_DIR": str(self.folder)}

    async def stop(self, number: signal.Signals = signal.SIGTERM, *, within: float = 60) -> int:
        """Stop it as a person or a system does; its exit code."""
        self.process.send_signal(number)
        await until(lambda: self.process.poll() is not None, "up to stop", within=within)
        return self.process.returncode

    async def __aenter__(self) -> Up:
        try:
            return await self.start()
        except BaseException:
            self._print()
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._print()
        await self.close()

    def _print(self) -> None:
        for path in (self.out, self.err, self.folder / "logs" / "unbroken.log"):
            if path.exists():
                print(f"---- {path.name}\n" + "\n".join(path.read_text().splitlines()[-60:]))

    async def close(self) -> None:
        """End everything and remove the folder."""
        if self._api is not None:
            await self._api.close()
        if self._process is not None and self._process.poll() is None:
            children = psutil.Process(self._process.pid).children()
            self._process.kill()
            self._process.wait()
            await until(lambda: not psutil.wait_procs(children, timeout=0)[1], "the parts to end")
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)
