"""API keys and sign-ins, both stored hashed in Redis.

A key is `ub_<id>_<secret>`: 160 random bits, so a plain digest is enough, and the id finds its entry in one step.
Revoking a key ends the sessions that were opened with it."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from unbroken.tasks import keys
from unbroken.tasks.connection import translated
from unbroken.tasks.events import iso
from unbroken.tasks.store import Store

CACHE_S = 2.0  # how long a revoked key may go on working in one process
CACHE_MAX = 10_000  # entries
SESSION_S = 30 * 86_400
LABEL_MAX = 100
_KEY = re.compile(r"^ub_([0-9a-z]{8})_([0-9a-f]{40})\Z", re.ASCII)
_TOKEN = re.compile(r"^[0-9a-f]{64}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """One API key, without its secret."""

    key_id: str
    owner: str
    label: str
    created_at: str | None

    def view(self) -> dict[str, Any]:
        """As the CLI shows it."""
        return {"key_id": self.key_id, "owner": self.owner, "label": self.label, "created_at": self.created_at}


async def create_key(store: Store, owner: str, label: str = "") -> tuple[str, str]:
    """Make a key for an owner. Returns its id, and the whole key, which is shown once and stored nowhere.
    Raises ValueError for an owner's name that cannot be part of a Redis key."""
    if not keys.is_owner(owner):
        raise ValueError("an owner is 1-64 letters, digits, and . _ @ -, beginning with a letter or digit")
    key_id = "".join(secrets.choice("0123456789abcdefghjkmnpqrstvwxyz") for _ in range(8))
    secret = f"ub_{key_id}_{secrets.token_hex(20)}"
    at = await store.time_ms()
    entry = {"owner": owner, "label": label[:LABEL_MAX], "hash": _digest(secret), "created": at}
    with translated():
        async with store.redis.pipeline(transaction=True) as pipe:
            pipe.hset(keys.key("keys"), key_id, json.dumps(entry))
            _note(pipe, store, "key_create", owner, key_id, at)
            await pipe.execute()
    return key_id, secret


def _note(pipe: Any, store: Store, op: str, owner: str, key_id: str, at: int) -> None:
    """An entry of the audit, in the same transaction as what it tells of. The key's id stands as its reason."""
    entry = {
        "task": "",
        "owner": owner,
        "actor": "operator",
        "op": op,
        "from": "",
        "to": "",
        "reason": key_id,
        "at": at,
    }
    pipe.xadd(keys.key("audit"), entry, maxlen=store.settings.audit_max, approximate=True)


async def list_keys(store: Store) -> list[Key]:
    """All keys, oldest first."""
    with translated():
        raw = await store.redis.hgetall(keys.key("keys"))
    found = [_read(key_id.decode(), data) for key_id, data in raw.items()]
    return sorted((key for key, _ in filter(None, found)), key=lambda key: key.created_at or "")


async def revoke_key(store: Store, key_id: str) -> bool:
    """Remove a key. False when there is no such key."""
    with translated():
        raw = await store.redis.hget(keys.key("keys"), key_id)
        if raw is None:
            return False
        found = _read(key_id, raw)
        at = await store.time_ms()
        async with store.redis.pipeline(transaction=True) as pipe:
            pipe.hdel(keys.key("keys"), key_id)
            _note(pipe, store, "key_revoke", found[0].owner if found else "", key_id, at)
            removed, _ = await pipe.execute()
    return bool(removed)


async def check(store: Store, secret: str) -> Key | None:
    """Whose key this is; None when it is not a key (any more)."""
    match = _KEY.match(secret)
    if not match:
        return None
    with translated():
        raw = await store.redis.hget(keys.key("keys"), match[1])
    found = _read(match[1], raw) if raw else None
    if found is None or not hmac.compare_digest(found[1], _digest(secret)):
        return None
    return found[0]


def _read(key_id: str, data: bytes) -> tuple[Key, str] | None:
    try:
        entry = json.loads(data)
        return Key(key_id, entry["owner"], entry["label"], iso(entry["created"])), entry["hash"]
    except (ValueError, KeyError, TypeError):
        return None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Access:
    """Questions about keys as a server asks them: many times a second, so answers are kept for a moment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[float, Key | None]] = {}
        self._any: tuple[float, bool] = (0.0, False)

    async def any_keys(self) -> bool:
        """Does any key exist?"""
        until, known = self._any
        if time.monotonic() < until:
            return known
        with translated():
            known = bool(await self._store.redis.hlen(keys.key("keys")))
        self._any = (time.monotonic() + CACHE_S, known)
        return known

    async def by_key(self, secret: str) -> Key | None:
        """Whose key this is."""
        if not _KEY.match(secret):
            return None
        kept = self._recall(secret)
        if kept is not None:
            return kept[1]
        return self._keep(secret, await check(self._store, secret))

    async def open_session(self, key: Key) -> str:
        """A token for the browser's cookie."""
        token = secrets.token_hex(32)
        with translated():
            await self._store.redis.set(_session(token), key.key_id, ex=SESSION_S)
        return token

    async def by_session(self, token: str) -> Key | None:
        """Who signed in with this token; None when nobody did, or the key was revoked since."""
        if not _TOKEN.match(token):
            return None
        kept = self._recall(token)
        if kept is not None:
            return kept[1]
        with translated():
            key_id = await self._store.redis.get(_session(token))
            raw = await self._store.redis.hget(keys.key("keys"), key_id) if key_id else None
        found = _read(key_id.decode(), raw) if raw else None
        return self._keep(token, found[0] if found else None)

    async def close_session(self, token: str) -> None:
        """Sign out."""
        if _TOKEN.match(token):
            self._kept.pop(_digest(token), None)
            with translated():
                await self._store.redis.delete(_session(token))

    async def gone(self, key_ids: Collection[str], sessions: Collection[str]) -> set[str]:
        """Those of some keys' ids and some sessions' names (`session_name`) that let nobody in any more. What is
        remembered of them is forgotten, so that this holds for the next request, too."""
        wanted = [*((keys.key("keys"), name) for name in key_ids), *((None, name) for name in sessions)]
        if not wanted:
            return set()
        with translated():
            async with self._store.redis.pipeline(transaction=False) as pipe:
                for where, name in wanted:
                    pipe.hexists(where, name) if where else pipe.exists(keys.key("session", name))
                found = await pipe.execute()
        gone = {name for (_, name), there in zip(wanted, found, strict=True) if not there}
        for entry, (_, key) in list(self._kept.items()) if gone else ():
            if entry in gone or (key is not None and key.key_id in gone):
                del self._kept[entry]
        return gone

    def _recall(self, secret: str) -> tuple[float, Key | None] | None:
        kept = self._kept.get(_digest(secret))
        return kept if kept and time.monotonic() < kept[0] else None

    def _keep(self, secret: str, key: Key | None) -> Key | None:
        if len(self._kept) >= CACHE_MAX:
            self._kept.clear()
        self._kept[_digest(secret)] = (time.monotonic() + CACHE_S, key)
        return key


def session_name(token: str) -> str:
    """What a session is called: it tells nobody the token."""
    return _digest(token)


def _session(token: str) -> str:
    return keys.key("session", session_name(token))
