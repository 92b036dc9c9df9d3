"""The model's process: ends when asked, ends with its parent, listens on loopback only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

from tests.support.llama import free_port, running_llama

MODULE = "unbroken.worker.backends.llama"


def test_serves_and_ends_at_sigterm(tmp_path: Path) -> None:
    with running_llama(tmp_path) as llama:
        models = httpx.get(f"{llama.url}/v1/models", timeout=10, trust_env=False)
        assert "SmolLM2" in models.text
        assert str(Path(sys.prefix)) not in models.text
        assert models.headers.get("access-control-allow-origin", "") == ""
        llama.process.send_signal(signal.SIGTERM)
        assert llama.process.wait(60) == 0


def test_ends_with_its_parent(tmp_path: Path) -> None:
    port = free_port()
    code = f"""
import subprocess, sys, time
arguments = ["--port={port}", "--slot-dir={tmp_path}", "--threads=1"]
child = subprocess.Popen([sys.executable, "-m", {MODULE!r}, *arguments], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    _wait_listening(port)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    gone, _ = psutil.wait_procs([child], timeout=60)  # it looks when the model is loaded
    assert gone


def test_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    for extra, word in (
        (["--host=0.0.0.0"], "loopback"),
        (["--host=example.org"], "loopback"),
        ([f"--model={tmp_path}/none.gguf"], "no model file"),
    ):
        arguments = ["--port=0", f"--slot-dir={tmp_path}", *extra]
        ran = subprocess.run([sys.executable, "-m", MODULE, *arguments], capture_output=True, timeout=60, check=False)
        assert ran.returncode != 0
        assert word in ran.stderr.decode()


def _wait_listening(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=5, trust_env=False)
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the model never listened")
