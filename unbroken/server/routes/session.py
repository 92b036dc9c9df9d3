"""Signing in with a browser: a key is exchanged for a cookie, because EventSource cannot send headers."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unbroken.server.auth import COOKIE, check_same_origin, find_caller, keys_needed, unauthorized
from unbroken.server.body import read_object
from unbroken.server.context import services
from unbroken.server.problems import invalid
from unbroken.tasks.access import SESSION_S
from unbroken.tasks.inputs import Strict

NO_STORE = {"Cache-Control": "no-store"}
BODY_MAX = 4_096


class SignIn(Strict):
    """The body."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=200)]


async def show(request: Request) -> Response:
    """GET /api/session: who am I? Open to everybody; `owner` is null before signing in."""
    shared = services(request)
    found = await find_caller(request)
    needed = keys_needed(shared.settings, await shared.access.any_keys())
    return JSONResponse({"owner": found.owner if found else None, "keys_required": needed}, headers=NO_STORE)


async def sign_in(request: Request) -> Response:
    """POST /api/session {"key"}"""
    shared = services(request)
    check_same_origin(request)
    try:
        given = SignIn.model_validate(await read_object(request, BODY_MAX))
    except ValidationError as error:
        raise invalid(error, SignIn) from None
    key = await shared.access.by_key(given.key.strip())
    if key is None:
        raise unauthorized()
    answer = JSONResponse({"owner": key.owner, "keys_required": True}, headers=NO_STORE)
    answer.set_cookie(
        COOKIE,
        await shared.access.open_session(key),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=shared.settings.secure_cookie or request.url.scheme == "https",
    )
    return answer


async def sign_out(request: Request) -> Response:
    """DELETE /api/session"""
    check_same_origin(request)
    await services(request).access.close_session(request.cookies.get(COOKIE, ""))
    answer = Response(status_code=204, headers=NO_STORE)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer
