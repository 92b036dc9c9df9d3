"""Commands on the server's own machine, which talk to the store directly: audit, doctor."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unbroken.cli import parts, place, show
from unbroken.cli.borrow import store_of
from unbroken.cli.place import CannotStart
from unbroken.cli.serving import DataDir, RedisUrl
from unbroken.cli.tasking import Json
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.settings import Settings, load

if TYPE_CHECKING:
    from unbroken.tasks.store import Store

SCAN_PAGE = 1_000  # audit entries read in one call


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("audit")(audit)
    app.command("doctor")(doctor)


def audit(
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only of this owner's tasks.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest last.")] = 50,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    as_json: Json = False,
) -> None:
    """Show who did what to which task, and when."""
    settings = load(data_dir=data_dir, redis_url=redis_url)
    entries = asyncio.run(_entries(settings, task, owner, limit))
    if as_json:
        show.as_json(entries)
        return
    columns = ("at", "task", "owner", "actor", "op", "from", "to", "reason")
    rows = [[entry.get(name) or "-" for name in columns] for entry in entries]
    show.table(columns, rows, gives=("owner", "from", "reason", "to"))


async def _entries(settings: Settings, task: str | None, owner: str | None, limit: int) -> list[dict[str, str]]:
    from unbroken.tasks import keys
    from unbroken.tasks.connection import translated

    wanted = {name: value for name, value in (("task", task), ("owner", owner)) if value is not None}
    found: list[dict[str, str]] = []
    newest = "+"
    async with store_of(settings) as store:
        while len(found) < limit:
            with translated():
                page = await store.redis.xrevrange(keys.key("audit"), newest, "-", count=SCAN_PAGE)
            for entry_id, fields in page:
                entry = {name.decode(): value.decode("utf-8", "replace") for name, value in fields.items()}
                entry["at"] = _time(entry.get("at", ""))
                if all(entry.get(name) == value for name, value in wanted.items()):
                    found.append(entry)
                newest = f"({entry_id.decode()}"
            if len(page) < SCAN_PAGE:
                break
    return list(reversed(found[:limit]))


def _time(ms: str) -> str:
    if not ms.isdigit():
        return ms
    return datetime.fromtimestamp(int(ms) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. level: ok, note (works, but could be better) or bad."""

    level: str
    what: str
    says: str


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Make indexes agree with the records.")] = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    as_json: Json = False,
) -> int:
    """Check the set-up and recount everything that is stored. Exit code 1 when something is wrong."""
    settings = load(data_dir=data_dir, redis_url=redis_url)
    findings = [
        *_machine(settings),
        *asyncio.run(_model(settings, _runs(settings))),
        *asyncio.run(_redis(settings, repair)),
    ]
    if as_json:
        show.as_json([{"level": f.level, "what": f.what, "says": f.says} for f in findings])
    else:
        show.table(("", "what", "says"), [(f.level, f.what, f.says) for f in findings], wraps=("says",))
    return int(any(finding.level == "bad" for finding in findings))


def _machine(settings: Settings) -> list[Finding]:
    folder = Path(settings.data_dir).expanduser().resolve()
    findings = []
    if folder.exists():
        free = shutil.disk_usage(folder).free
        level = "ok" if free > 1 << 30 and os.access(folder, os.W_OK) else "bad"
        findings.append(Finding(level, "data folder", f"{folder}, {free / (1 << 30):.1f} GiB free"))
        at = place.running(folder).get("url")
        findings.append(Finding("ok", "unbroken up", f"running at {at}" if at else "not running here"))
    else:
        findings.append(Finding("note", "data folder", f"{folder} does not exist yet"))
    return findings


def _runs(settings: Settings) -> dict[str, Any]:
    """What `up` says about its model, unless another one is named."""
    return {} if "backend" in settings.model_fields_set else place.running(settings.data_dir.expanduser().resolve())


async def _model(settings: Settings, runs: dict[str, Any]) -> list[Finding]:
    """Is the model there? The one that `up` runs here, else the one that the settings mean."""
    from unbroken.cli import probes

    backend = str(runs.get("backend") or settings.backend)
    if backend == "scripted":
        return [Finding("note", "model", "the scripted backend: for tests, it knows no model")]
    if backend == "local":
        if runs.get("model_url"):
            return [_answer(await probes.model_says(f"{runs['model_url']}/health"), f"local, {runs['model_url']}")]
        problem = parts.local_model_problem(settings)
        return [Finding("bad" if problem else "ok", "model", problem or "local, installed; not running here")]
    url = str(runs.get("model_url") or settings.backend_url or "https://api.openai.com/v1").rstrip("/")
    key = settings.api_key.get_secret_value() if settings.api_key else None
    return [_answer(await probes.model_says(f"{url}/models", key), url)]


def _answer(problem: str | None, where: str) -> Finding:
    return Finding("bad", "model", f"{where}: {problem}") if problem else Finding("ok", "model", f"{where} answers")


async def _redis(settings: Settings, repair: bool) -> list[Finding]:
    from unbroken.tasks.audit import recount

    try:
        async with store_of(settings) as store:
            where = store.settings.redis_shown
            info, names = await _info(store), await _clients(store)
            counted = await recount(store, repair=repair)
    except (StoreUnavailable, CannotStart) as error:
        return [Finding("bad", "redis", str(error))]
    findings = [Finding("ok", "redis", f"{where}, {info['version']}"), *_policies(info), _running(names)]
    if counted.differences:
        done = "repaired" if repair else "run again with --repair"
        findings += [Finding("note" if repair else "bad", "recount", line) for line in counted.differences[:50]]
        findings.append(Finding("note", "recount", f"{len(counted.differences)} differences; {done}"))
    else:
        findings.append(Finding("ok", "recount", f"{counted.tasks} tasks, 0 differences"))
    return findings


async def _info(store: Store) -> dict[str, Any]:
    from unbroken.tasks.connection import translated

    with translated():
        info = await store.redis.info()
    name = info.get("server_name", "redis")
    return {
        "version": f"{name} {info.get('valkey_version') or info.get('redis_version')}",
        "policy": info.get("maxmemory_policy"),
        "maxmemory": int(info.get("maxmemory", 0)),
        "aof": int(info.get("aof_enabled", 0)),
        "aof_ok": info.get("aof_last_write_status", "ok"),
    }


async def _clients(store: Store) -> list[str] | None:
    """The names of all connections, or None where Redis does not tell."""
    from redis.exceptions import ResponseError

    from unbroken.tasks.connection import translated

    try:
        with translated():
            return [str(client.get("name", "")) for client in await store.redis.client_list()]
    except ResponseError:  # managed services refuse it
        return None


def _running(names: list[str] | None) -> Finding:
    if names is None:
        return Finding("note", "processes", "Redis does not tell who is connected")
    workers = {name for name in names if name.endswith("-hints")}  # one such connection a worker
    servers = "a server" if "unbroken-server" in names else "no server"
    says = f"connected: {len(workers)} worker{'' if len(workers) == 1 else 's'}, {servers}"
    return Finding("ok" if workers and "unbroken-server" in names else "note", "processes", says)


def _policies(info: dict[str, Any]) -> list[Finding]:
    policy = str(info["policy"])
    evicts = Finding("ok", "eviction", policy)
    if policy != "noeviction":
        evicts = Finding("bad", "eviction", f"maxmemory-policy is {policy}: keys may vanish; use noeviction")
    aof = Finding("ok", "durability", "append-only file is on")
    if not info["aof"]:
        aof = Finding("note", "durability", "append-only file is off: a crash of Redis loses what is stored")
    elif info["aof_ok"] != "ok":
        aof = Finding("bad", "durability", "the last write to the append-only file failed")
    return [evicts, aof]
