"""`unbroken keys`: API keys, made and revoked on the server's machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from unbroken.cli import show
from unbroken.cli.borrow import store_of
from unbroken.cli.serving import DataDir, RedisUrl
from unbroken.cli.tasking import Json
from unbroken.tasks.errors import NotFound
from unbroken.tasks.settings import load

if TYPE_CHECKING:
    from pathlib import Path

    from unbroken.tasks.store import Store

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("revoke")(revoke)
    app.add_typer(group, name="keys")


def _with_store(
    data_dir: Path | None, redis_url: str | None, work: Callable[[Store], Awaitable[T]], *, make: bool = False
) -> T:
    async def run() -> T:
        async with store_of(load(data_dir=data_dir, redis_url=redis_url), make=make) as store:
            return await work(store)

    return asyncio.run(run())


def create(
    owner: Annotated[str | None, typer.Argument(help="Whose tasks the key opens; local when nobody is named.")] = None,
    owner_option: Annotated[str | None, typer.Option("--owner", help="The same, as an option.")] = None,
    label: Annotated[str, typer.Option(help="A note, to know it again.")] = "",
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it. It is shown this once and stored only as a hash."""
    from unbroken.tasks.access import create_key

    name = owner or owner_option or "local"
    if not (owner or owner_option):
        show.tell("A key of the owner local; for somebody else: unbroken keys create OWNER")
    try:
        key_id, secret = _with_store(data_dir, redis_url, lambda store: create_key(store, name, label), make=True)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        show.as_json({"key_id": key_id, "owner": name, "label": label, "key": secret})
        return
    print(secret)
    if sys.stdout.isatty():
        show.tell(f"Key {key_id} of {name}. It is not shown again; use it as UNBROKEN_KEY, or to sign in.")


def list_keys(data_dir: DataDir = None, redis_url: RedisUrl = None, as_json: Json = False) -> None:
    """List keys, without their secrets."""
    from unbroken.tasks import access

    found = _with_store(data_dir, redis_url, access.list_keys)
    if as_json:
        show.as_json([key.view() for key in found])
        return
    rows = [(key.key_id, key.owner, key.label, show.age(key.created_at)) for key in found]
    show.table(("id", "owner", "label", "age"), rows, wraps=("label",))


def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, or the key itself.", metavar="ID")],
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    as_json: Json = False,
) -> None:
    """Take a key back; sessions opened with it end, too."""
    from unbroken.tasks.access import revoke_key

    if key_id.startswith("ub_"):
        key_id = key_id.split("_")[1]
    if not _with_store(data_dir, redis_url, lambda store: revoke_key(store, key_id)):
        raise NotFound(f"there is no key {key_id}; see `unbroken keys list`")
    if as_json:
        show.as_json({"key_id": key_id, "revoked": True})
        return
    print(f"revoked\t{key_id}")
