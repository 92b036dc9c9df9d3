"""As much of an S3 as a checkpoint needs, in memory, on a real port: put, multipart, get, head, list, delete. And what
goes wrong with one: refusals, errors, broken connections, slowness, answers that are too short or are not what was put.

    with S3() as s3:
        s3.trouble("part", "reset", times=1)      # the next part of an upload breaks in the middle
        s3.trouble("get", "short")                # from now on every download ends early"""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal
from xml.sax.saxutils import escape

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.support.processes import free_port
from tests.support.wait import until_sync

What = Literal["put", "begin", "part", "finish", "abort", "get", "head", "list", "delete"]
Fault = Literal["403", "500", "reset", "hang", "short", "other"]
BUCKET = "bucket"


@dataclass
class _Trouble:
    what: What
    fault: Fault
    times: int
    after: int


class Broken(Response):
    """An answer that ends in the middle of a word, and the connection with it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Promise more than comes."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": b"<", "more_body": True})
        raise ConnectionResetError


class S3:
    """The server. `objects`: what is stored, by key; `open`: uploads that were neither finished nor given up."""

    def __init__(self) -> None:
        self.port = free_port()
        self.objects: dict[str, bytes] = {}
        self.open: dict[str, dict[int, bytes]] = {}
        self.asked: Counter[str] = Counter()
        self._troubles: list[_Trouble] = []
        app = Starlette(routes=[Route("/{rest:path}", self._answer, methods=["GET", "HEAD", "PUT", "POST", "DELETE"])])
        quiet = {"log_level": "critical", "lifespan": "off", "timeout_graceful_shutdown": 0}
        self._server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=self.port, **quiet))  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """What whoever uses it has to be told."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def trouble(self, what: What, fault: Fault, *, times: int = 1 << 30, after: int = 0) -> None:
        """What goes wrong with the next `times` such requests, `after` so many good ones."""
        self._troubles.append(_Trouble(what, fault, times, after))

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self._troubles.clear()

    def __enter__(self) -> S3:
        self._thread.start()
        until_sync(lambda: self._server.started, "the object store")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.force_exit = self._server.should_exit = True
        self._thread.join(10)

    def _fault(self, what: What) -> Fault | None:
        self.asked[what] += 1
        for trouble in self._troubles:
            if trouble.what == what and trouble.times > 0:
                if trouble.after > 0:
                    trouble.after -= 1
                    continue
                trouble.times -= 1
                return trouble.fault
        return None

    async def _answer(self, request: Request) -> Response:
        key = request.url.path.removeprefix(f"/{BUCKET}").strip("/")
        what = _what(request, key)
        fault = self._fault(what)
        if fault in ("403", "500"):
            code = "AccessDenied" if fault == "403" else "InternalError"
            return _xml(f"<Error><Code>{code}</Code><Message>no</Message></Error>", int(fault))
        if fault == "hang":
            await asyncio.sleep(3_600)
        if fault == "reset":
            async for _ in request.stream():
                return Broken()
        body = await request.body()
        return self._do(what, key, body, request, fault)

    def _do(self, what: What, key: str, body: bytes, request: Request, fault: Fault | None) -> Response:
        upload = request.query_params.get("uploadId", "")
        if what == "put":
            self.objects[key] = body
        elif what == "begin":
            upload = f"upload-{len(self.open)}-{self.asked['begin']}"
            self.open[upload] = {}
            name = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            return _xml(f"<InitiateMultipartUploadResult>{name}</InitiateMultipartUploadResult>")
        elif what == "part":
            self.open[upload][int(request.query_params["partNumber"])] = body
        elif what == "finish":
            self.objects[key] = b"".join(part for _, part in sorted(self.open.pop(upload).items()))
            done = f"<Key>{escape(key)}</Key><ETag>&quot;{_tag(self.objects[key])}&quot;</ETag>"
            return _xml(f"<CompleteMultipartUploadResult>{done}</CompleteMultipartUploadResult>")
        elif what == "abort":
            self.open.pop(upload, None)
            return Response(status_code=204)
        elif what == "delete":
            gone = re.findall(r"<Key>([^<]+)</Key>", body.decode()) or [key]
            for name in gone:
                self.objects.pop(name, None)
            rows = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in gone)
            return _xml(f"<DeleteResult>{rows}</DeleteResult>")
        elif what == "list":
            return self._list(request.query_params.get("prefix", ""))
        else:
            return self._read(key, fault)
        return Response(headers={"ETag": f'"{_tag(body)}"'})

    def _read(self, key: str, fault: Fault | None) -> Response:
        if key not in self.objects:
            return _xml("<Error><Code>NoSuchKey</Code><Message>none</Message></Error>", 404)
        data = self.objects[key]
        if fault == "other":
            data = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        if fault == "short":
            data = data[: len(data) // 2]
        headers = {"ETag": f'"{_tag(data)}"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        return Response(data, headers=headers, media_type="application/octet-stream")

    def _list(self, prefix: str) -> Response:
        at = datetime.now(UTC).isoformat()
        rows = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>{at}</LastModified><Size>{len(data)}</Size>"
            f"<ETag>&quot;{_tag(data)}&quot;</ETag></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        ]
        head = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(rows)}</KeyCount>"
        return _xml(f"<ListBucketResult>{head}<IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>")


def _what(request: Request, key: str) -> What:
    query = request.query_params
    match request.method:
        case "PUT":
            return "part" if "uploadId" in query else "put"
        case "POST":
            return "delete" if "delete" in query else "begin" if "uploads" in query else "finish"
        case "DELETE":
            return "abort" if "uploadId" in query else "delete"
        case "HEAD":
            return "head"
    return "get" if key else "list"


def _tag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _xml(body: str, status: int = 200) -> Response:
    return Response(f'<?xml version="1.0"?>{body}', status, media_type="application/xml")
