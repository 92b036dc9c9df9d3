"""What must be right before the server starts."""

from __future__ import annotations

import logging

from unbroken.server.auth import is_loopback
from unbroken.tasks.access import Access
from unbroken.tasks.connection import connect, first_answer
from unbroken.tasks.errors import StoreRefuses, StoreUnavailable
from unbroken.tasks.keeping import check_keeping
from unbroken.tasks.settings import BadSetting, Settings
from unbroken.tasks.store import Store

log = logging.getLogger("unbroken.server")


async def check(settings: Settings) -> None:
    """Raises BadSetting when the server must not start like this. A Redis that does not answer yet is no reason:
    the server then waits for it, and says so at /readyz."""
    redis = connect(settings.redis_url, name="unbroken-server-check", retries=1, timeout_s=2)
    store = Store(redis, settings)
    try:
        async with first_answer():
            await check_keeping(store)
            any_keys = await Access(store).any_keys()
    except StoreRefuses as error:  # this does not get better by waiting
        raise BadSetting(f"UNBROKEN_REDIS_URL: {error} at {settings.redis_shown}") from None
    except StoreUnavailable as error:
        log.warning("%s at %s; starting anyway, and waiting for it", error, settings.redis_shown)
        any_keys = True  # nothing is served without knowing better
    finally:
        await store.close()
    if not (any_keys or settings.insecure or is_loopback(settings.host)):
        raise BadSetting(
            f"UNBROKEN_HOST: {settings.host} can be reached by others, and there are no keys. Make one with "
            f"`unbroken keys create OWNER{_where(settings)}`, or say --insecure."
        )


def _where(settings: Settings) -> str:
    """How a command finds this server's database, where it would not by itself."""
    url = settings.redis_url
    if "redis_url" in settings.model_fields_set and not url.startswith("unix:"):
        return f" --redis-url {settings.redis_shown}" if "@" not in url else " --redis-url …"
    if settings.data_dir != Settings.model_fields["data_dir"].default:
        return f" --data-dir {settings.data_dir}"
    return ""
