"""Who asks. Nobody else than the functions here decides whose tasks a request may see."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.requests import Request

from unbroken.server.context import services
from unbroken.server.problems import Problem
from unbroken.tasks.access import session_name
from unbroken.tasks.settings import Settings

LOCAL = "local"  # the owner on loopback without keys
COOKIE = "unbroken_session"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::\d+)?\Z")


@dataclass(frozen=True, slots=True)
class Caller:
    """owner: whose tasks. actor: for the audit. via: local, key or session. key_id, session: what lets them in, by
    name; '' where nothing is needed."""

    owner: str
    actor: str
    via: str
    key_id: str = ""
    session: str = ""


@lru_cache(10_000)
def _caller(owner: str, key_id: str, session: str = "") -> Caller:
    """One value for all the requests of a caller: each open stream keeps it."""
    via = "session" if session else "key"
    return Caller(owner, f"{via}:{key_id}", via, key_id, session)


_LOCAL = Caller(LOCAL, LOCAL, "local")


@lru_cache(1_000)
def is_loopback(host: str) -> bool:
    """Is this name or address this machine only?"""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header, without the port; '' for nonsense."""
    match = _HOST.match(header.strip())
    return match[1].strip("[]").lower() if match else ""


def keys_needed(settings: Settings, any_keys: bool) -> bool:
    """As soon as keys exist, and on every address that others can reach unless that was said to be all right."""
    return any_keys or not (is_loopback(settings.host) or settings.insecure)


async def find_caller(request: Request) -> Caller | None:
    """Who asks, or None when a key is needed and none (or a wrong one) was given. Raises Problem 403 for what a
    foreign page makes a browser send."""
    shared = services(request)
    bearer = _bearer(request)
    if bearer is not None:
        key = await shared.access.by_key(bearer)
        if key is not None:
            return _caller(key.owner, key.key_id)
    required = keys_needed(shared.settings, await shared.access.any_keys())
    if not required:
        check_host(request, shared.settings)
        check_same_origin(request)
        return _LOCAL
    token = request.cookies.get(COOKIE)
    if bearer is None and token:
        key = await shared.access.by_session(token)
        if key is not None:
            check_same_origin(request)
            return _caller(key.owner, key.key_id, session_name(token))
    return None


async def caller(request: Request) -> Caller:
    """Who asks. Raises Problem 401 or 403."""
    found = await find_caller(request)
    if found is None:
        raise unauthorized()
    return found


def unauthorized() -> Problem:
    """The one answer to a missing and to a wrong key."""
    return Problem(401, "A valid API key is needed.", headers={"WWW-Authenticate": 'Bearer realm="unbroken"'})


def _bearer(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def check_host(request: Request, settings: Settings) -> None:
    # A name that an attacker controls can be pointed at 127.0.0.1 (DNS rebinding); the Host header then betrays it.
    if settings.insecure:
        return
    name = host_name(request.headers.get("host", ""))
    if not (is_loopback(name) or name == settings.host.strip("[]").lower()):
        raise Problem(403, "Without keys this server answers to loopback names only.")


def check_same_origin(request: Request) -> None:
    """Writes that a browser sends by itself must come from our own page."""
    if request.method in _SAFE:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        fine = site in ("same-origin", "none")
    elif origin is not None:
        fine = _place(origin) == request.headers.get("host", "").lower()
    else:
        fine = True  # not a browser
    if not fine:
        raise Problem(403, "This request comes from another site.")


def _place(origin: str) -> str | None:
    """Host and port of an Origin header; None for nonsense."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # a broken [address]
        return None
