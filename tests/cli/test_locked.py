"""A Redis that answers and lets nobody in: told at once, on a socket as on a port, and waited for by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as blocking

from tests.support.llama import free_port
from tests.support.valkey import Valkey
from unbroken.cli.borrow import store_of
from unbroken.cli.place import CannotStart
from unbroken.cli.up import reach
from unbroken.server.guards import check
from unbroken.tasks.connection import connect
from unbroken.tasks.errors import StoreRefuses
from unbroken.tasks.settings import BadSetting, Settings


@pytest.fixture(scope="module")
def locked() -> Iterator[Valkey]:
    """A database with a password."""
    with Valkey(port=free_port()) as server:
        with blocking.Redis.from_url(server.url) as client:
            client.config_set("requirepass", "right")
        yield server
        with blocking.Redis.from_url(f"unix://:right@{server.socket}") as client:
            client.config_set("requirepass", "")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("unix://{socket}", "wants a password"),
        ("redis://:wrong@127.0.0.1:{port}/0", "with this password"),
        ("unix://:right@{socket}?db=99", "no database of this number"),
    ],
)
async def test_a_refusal_is_told_and_waited_for_by_nobody(
    locked: Valkey, place: str, says: str, tmp_path: Path
) -> None:
    settings = Settings(redis_url=place.format(socket=locked.socket, port=locked.port), data_dir=tmp_path)
    async with asyncio.timeout(60):
        with pytest.raises(StoreRefuses, match=says):
            async with store_of(settings):
                pass
        with pytest.raises(CannotStart, match="refuses"):
            reach(settings.redis_url)
        with pytest.raises(BadSetting, match=f"UNBROKEN_REDIS_URL: .*{says}"):
            await check(settings)


async def test_a_password_opens_a_socket(locked: Valkey) -> None:
    redis = connect(f"unix://:right@{locked.socket}?db=1", name="test")
    try:
        assert await redis.ping()
    finally:
        await redis.aclose()


async def test_commands_that_a_managed_service_keeps_for_itself_are_no_refusal(locked: Valkey, tmp_path: Path) -> None:
    with blocking.Redis.from_url(f"unix://:right@{locked.socket}") as admin:
        admin.execute_command("ACL", "SETUSER", "guest", "on", ">pass", "~*", "&*", "+@all", "-config")
    await check(Settings(redis_url=f"redis://guest:pass@127.0.0.1:{locked.port}/0", data_dir=tmp_path))
