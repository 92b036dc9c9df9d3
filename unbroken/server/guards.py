"""What must be right before the server starts."""

from __future__ import annotations

import logging
from typing import Any

from unbroken.server.auth import is_loopback
from unbroken.tasks.access import Access
from unbroken.tasks.connection import connect, translated
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.settings import BadSetting, Settings
from unbroken.tasks.store import Store

log = logging.getLogger("unbroken.server")


async def check(settings: Settings) -> None:
    """Raises BadSetting when the server must not start like this. A Redis that does not answer yet is no reason:
    the server then waits for it, and says so at /readyz."""
    redis = connect(settings.redis_url, name="unbroken-server-check", retries=1, timeout_s=2)
    store = Store(redis, settings)
    try:
        await check_redis(store)
        any_keys = await Access(store).any_keys()
    except StoreUnavailable as error:
        log.warning("%s; starting anyway", error)
        any_keys = True  # nothing is served without knowing better
    finally:
        await store.close()
    if not (any_keys or settings.insecure or is_loopback(settings.host)):
        raise BadSetting(
            f"UNBROKEN_HOST: {settings.host} can be reached by others, and there are no keys. Make one with "
            "`unbroken keys create`, or say --insecure."
        )


async def check_redis(store: Store) -> None:
    """Raises BadSetting when Redis may throw away what it was given. Warns when a restart would."""
    try:
        with translated():
            policy = await _config(store, "maxmemory-policy")
            limit = await _config(store, "maxmemory")
            aof = await _config(store, "appendonly")
    except StoreUnavailable:
        raise
    except Exception as error:  # managed services refuse CONFIG
        log.warning("cannot see how Redis is set up (%s); make sure that it never evicts keys", type(error).__name__)
        return
    if policy and policy != "noeviction":
        why = f"Redis may evict keys (maxmemory-policy is {policy}): tasks would vanish. Set it to noeviction"
        if not store.settings.force:
            raise BadSetting(f"{why}, or say --force.")
        log.warning("%s.", why)
    if aof == "no":
        log.warning("Redis keeps no append-only file: its restart loses tasks. Set appendonly to yes.")
    if limit == "0":
        log.info("Redis has no maxmemory: it may be killed instead of refusing what is too much")


async def _config(store: Store, name: str) -> str:
    answer: Any = await store.redis.config_get(name)
    found = {_text(key): _text(value) for key, value in answer.items()}
    return found.get(name, "")


def _text(raw: bytes | str) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw
