"""The page and its files. Everything comes from us; nothing inline runs."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Scope

from unbroken.server.problems import Problem
from unbroken.server.routes.tasks import matches

FOLDER = Path(__file__).resolve().parents[2] / "static"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again each time, answered with 304
}
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".css": "text/css"}


async def index(request: Request) -> Response:
    """GET /"""
    return _file(request, "index.html")


async def static(request: Request) -> Response:
    """GET /static/{path}"""
    return _file(request, request.path_params["path"])


async def favicon(request: Request) -> Response:
    """GET /favicon.ico: browsers ask without being told to."""
    return _file(request, "logo.svg")


def lost(scope: Scope, status: int) -> Response | None:
    """A page for a person who asked for an address that does not exist; None for programs, and for everything else."""
    if status != 404 or scope["method"] not in ("GET", "HEAD") or scope["path"].startswith(("/api/", "/static/")):
        return None
    if "text/html" not in Headers(scope=scope).get("accept", ""):
        return None
    return FileResponse(FOLDER / "not-found.html", status, {**HEADERS, "Cache-Control": "no-store"}, "text/html")


def _file(request: Request, name: str) -> Response:
    path = (FOLDER / name.replace("\0", "?")).resolve()
    if not path.is_relative_to(FOLDER) or not path.is_file():
        raise Problem(404, "There is nothing at this address.")
    stat = path.stat()
    etag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers={**HEADERS, "ETag": etag})
    media = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return FileResponse(path, headers={**HEADERS, "ETag": etag}, media_type=media, stat_result=stat)
