"""Commands that run parts of the service: up, server, worker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli import embedded
from unbroken.tasks.settings import Settings, load

Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder for everything that is kept.")]
Concurrency = Annotated[int | None, typer.Option(help="Tasks at once in one worker.")]
Backend = Annotated[str | None, typer.Option(help="local, openai or scripted.")]
BackendUrl = Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.")]
Model = Annotated[str | None, typer.Option(help="Model name; for the local backend, a GGUF file.")]
RedisUrl = Annotated[str | None, typer.Option(help="A Redis or Valkey of your own.")]
Insecure = Annotated[bool | None, typer.Option("--insecure", help="Serve other addresses without keys.")]
Force = Annotated[bool | None, typer.Option("--force", help="Start although Redis may evict keys.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("up")(up)
    app.command("server")(server)
    app.command("worker")(worker)


def up(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    workers: Annotated[int, typer.Option(min=1, max=256, envvar="UNBROKEN_WORKERS", help="Worker processes.")] = 2,
    concurrency: Concurrency = None,
    backend: Backend = None,
    backend_url: BackendUrl = None,
    model: Model = None,
    redis_url: RedisUrl = None,
    insecure: Insecure = None,
    force: Force = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the output of all parts.")] = False,
) -> None:
    """Run everything: private database, local model, server, workers, page."""
    from unbroken.cli import up as command

    where = {"host": host, "port": port, "data_dir": data_dir, "redis_url": redis_url, "insecure": insecure}
    settings = _with_model(backend, backend_url, model=model, concurrency=concurrency, force=force, **where)
    command.up(settings, workers, verbose=verbose)


def server(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    insecure: Insecure = None,
    force: Force = None,
) -> None:
    """Run the HTTP server only."""
    from unbroken.server.main import serve

    settings = load(host=host, port=port, data_dir=data_dir, redis_url=redis_url, insecure=insecure, force=force)
    serve(with_redis(settings))


def worker(
    concurrency: Concurrency = None,
    data_dir: DataDir = None,
    backend: Backend = None,
    backend_url: BackendUrl = None,
    model: Model = None,
    redis_url: RedisUrl = None,
    force: Force = None,
) -> None:
    """Run tasks only."""
    from unbroken.worker.main import work

    more = {"model": model, "concurrency": concurrency, "data_dir": data_dir, "redis_url": redis_url, "force": force}
    work(with_redis(_with_model(backend, backend_url, **more)))


def _with_model(backend: str | None, backend_url: str | None, **options: object) -> Settings:
    """The settings of these options. Who names the address of a model means the backend that takes one."""
    if backend is None and backend_url is not None and "UNBROKEN_BACKEND" not in os.environ:
        backend = "openai"
    return load(backend=backend, backend_url=backend_url, **options)


def with_redis(settings: Settings) -> Settings:
    """The settings with the Redis that is meant: the one named, else the private one of the data folder."""
    if "redis_url" in settings.model_fields_set:
        return settings
    found = embedded.find(settings.data_dir)
    return settings.model_copy(update={"redis_url": found.url}) if found else settings
