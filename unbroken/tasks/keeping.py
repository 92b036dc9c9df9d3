"""Does this Redis keep what it is given? Asked at the start of every server and worker."""

from __future__ import annotations

import logging
from typing import Any

from unbroken.tasks.connection import connect, first_answer, translated
from unbroken.tasks.errors import StoreRefuses, StoreUnavailable
from unbroken.tasks.settings import BadSetting, Settings
from unbroken.tasks.store import Store

log = logging.getLogger("unbroken.tasks")


async def check_keeping(store: Store) -> None:
    """Raises BadSetting when Redis may throw away what it was given, StoreUnavailable when it does not answer. Warns
    when a restart would lose everything."""
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
    if limit == "0" and not store.settings.redis_url.startswith("unix:"):  # the private one shares this machine anyway
        log.info("Redis has no maxmemory: it may be killed instead of refusing what is too much")


async def check_keeping_once(settings: Settings, *, name: str) -> None:
    """The same with a connection for just that. A Redis that does not answer yet is no reason not to start; one that
    answers with a refusal is (BadSetting)."""
    redis = connect(settings.redis_url, name=name, retries=1, timeout_s=2)
    store = Store(redis, settings)
    try:
        async with first_answer():
            await check_keeping(store)
    except StoreRefuses as error:
        raise BadSetting(f"UNBROKEN_REDIS_URL: {error} at {settings.redis_shown}") from None
    except StoreUnavailable as error:
        log.warning("%s at %s; starting anyway, and waiting for it", error, settings.redis_shown)
    finally:
        await store.close()


async def _config(store: Store, name: str) -> str:
    answer: Any = await store.redis.config_get(name)
    found = {_text(key): _text(value) for key, value in answer.items()}
    return found.get(name, "")


def _text(raw: bytes | str) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw
