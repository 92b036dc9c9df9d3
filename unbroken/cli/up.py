"""`unbroken up`: everything with one command."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from unbroken.cli import embedded, parts, place
from unbroken.cli.child import Part
from unbroken.cli.logs import Output
from unbroken.cli.place import CannotStart
from unbroken.cli.supervisor import Supervisor
from unbroken.cli.syncing import syncing
from unbroken.tasks.settings import Settings

SLOTS_MAX = 8  # conversations that the small local model keeps at once; more only divide the same two cores


@dataclass(frozen=True)
class Plan:
    """What will run: settings as the children get them, and the parts in the order in which they start."""

    settings: Settings
    stages: list[list[Part]]
    database: embedded.Embedded | None
    """The private one, unless another is named."""


def up(settings: Settings, workers: int, *, verbose: bool = False) -> None:
    """Run until a signal ends it. Raises CannotStart before anything was started, or after all was
    stopped."""
    folder = place.prepare(settings.data_dir)
    lock = place.Lock.take(folder)
    output: Output | None = None
    try:
        plan = make_plan(settings, workers, folder, lock)
        output = Output(folder / "logs", verbose=verbose)
        where = place.address(plan.settings.host, plan.settings.port)
        _run(plan, output, folder, where)
    finally:
        place.forget_running(folder)
        if output is not None:
            output.close()
        lock.release()


def make_plan(settings: Settings, workers: int, folder: Path, lock: place.Lock) -> Plan:
    """Check everything that can be checked before the first process starts. Raises CannotStart."""
    problem = parts.local_model_problem(settings) if settings.backend == "local" else None
    if problem:
        raise CannotStart(f"{problem}; choose another model with --backend openai --backend-url URL")
    if settings.backend == "openai" and not settings.backend_url:
        raise CannotStart("--backend openai needs --backend-url, such as http://127.0.0.1:11434/v1")
    changes: dict[str, Any] = {"data_dir": folder, "port": place.choose_port(settings.host, settings.port)}
    stages: list[list[Part]] = []
    made: embedded.Embedded | None = None
    if "redis_url" in settings.model_fields_set:
        reach(settings.redis_url)
    else:
        made = embedded.prepare(folder)
        changes["redis_url"] = made.url
        stages.append([parts.database(made, lock.fd)])
    model_port = 0
    if settings.backend == "local":
        model_port = place.choose_port("127.0.0.1", 0)
        slot_dir = settings.slot_dir or folder / "slots"
        slot_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        changes |= {"local_url": f"http://127.0.0.1:{model_port}", "slot_dir": slot_dir}
    final = settings.model_copy(update=changes)
    second = [parts.server(final)]
    if settings.backend == "local":
        slots = min(SLOTS_MAX, max(1, workers * final.concurrency))
        second.append(parts.model(final, model_port, slots))
    stages.append(second)
    stages.append([parts.worker(final, number) for number in range(1, workers + 1)])
    return Plan(final, stages, made)


def _run(plan: Plan, output: Output, folder: Path, where: str) -> None:
    began = time.monotonic()

    def ready() -> None:
        place.write_running(folder, {"url": where, "pid": os.getpid(), **_model_of(plan.settings)})
        output.line_of_supervisor(f"ready at {where} after {time.monotonic() - began:.1f} s")
        outside = place.from_outside(plan.settings.host, plan.settings.port)
        print(f"Unbroken is ready: {where}", flush=True)
        if outside:
            print(f"From other machines: {outside}", file=sys.stderr, flush=True)

    with syncing(plan.database.folder) if plan.database else nullcontext():
        asyncio.run(Supervisor(plan.stages, output).run(ready))


def _model_of(settings: Settings) -> dict[str, str]:
    """Which model runs here, so that `doctor` can ask it."""
    url = {"local": settings.local_url, "openai": settings.backend_url}.get(settings.backend)
    return {"backend": settings.backend, **({"model_url": without_password(url)} if url else {})}


def without_password(url: str) -> str:
    """A URL that may be shown."""
    cut = urlsplit(url)
    host = cut.netloc.rpartition("@")[2]
    return f"{cut.scheme}://{host}{cut.path}"


def reach(url: str) -> None:
    """Ask an outside Redis for an answer. Raises CannotStart with what went wrong."""
    import redis

    try:
        with redis.Redis.from_url(url, protocol=2, socket_timeout=5, socket_connect_timeout=5) as client:
            client.ping()
    except redis.BusyLoadingError:
        return  # it will answer; the parts wait for that themselves
    except (redis.AuthenticationError, redis.ResponseError) as error:
        raise CannotStart(f"Redis at {without_password(url)} refuses: {error}; see UNBROKEN_REDIS_URL") from None
    except (redis.RedisError, OSError, ValueError) as error:
        raise CannotStart(f"cannot reach Redis at {without_password(url)}: {error}; see UNBROKEN_REDIS_URL") from None
