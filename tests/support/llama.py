"""A real llama.cpp server in its own process, as `unbroken up` starts it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass(frozen=True)
class Llama:
    """Where the server is and where it keeps slots."""

    url: str
    slot_dir: Path
    process: subprocess.Popen[bytes]


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_llama(folder: Path, *, parallel: int = 2, context: int = 2_048) -> Iterator[Llama]:
    """Start it, wait until it answers, stop it at the end. Its log is `<folder>/llama.log`."""
    port = free_port()
    slots = folder / "slots"
    module = "unbroken.worker.backends.llama"
    arguments = [f"--port={port}", f"--slot-dir={slots}", f"--parallel={parallel}", f"--context={context}"]
    arguments.append("--threads=1")  # other tests run beside
    with (folder / "llama.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_ready(url, process, folder / "llama.log")
        yield Llama(url, slots, process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"the model did not start: {log.read_text()[-2_000:]}")
