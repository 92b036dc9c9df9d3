"""A server behind nginx whose every move the test decides: when it sends, when it dies, what it saw."""

from __future__ import annotations

import json
import queue
import socket
import socketserver
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import cast

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store, no-transform\r\n"
    b"x-accel-buffering: no\r\ntransfer-encoding: chunked\r\n\r\n"
)
PATIENCE_S = 20.0


@dataclass(frozen=True)
class Call:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Behaviour:
    """What the server does.

    dies: closes the connection after it has read a call of this method, without an answer.
    status: of every answer that is not a stream. stream: what to send next; None ends the stream."""

    dies: set[str] = field(default_factory=set)
    status: int = 200
    stream: queue.Queue[bytes | None] = field(default_factory=queue.Queue)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        upstream = cast(_Server, self.server).upstream
        upstream.connections += 1
        while (call := self._read()) is not None:
            upstream.calls.append(call)
            if call.method in upstream.behaviour.dies:
                # RST instead of FIN: what a killed process leaves with unread data, too.
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                return
            if call.path.split("?")[0].endswith("/stream"):
                self._stream(call, upstream.behaviour.stream)
            else:
                self._answer(call, upstream.behaviour.status)

    def _read(self) -> Call | None:
        first = self.rfile.readline().decode()
        if not first.strip():
            return None
        method, path, _ = first.split(" ", 2)
        headers: dict[str, str] = {}
        while line := self.rfile.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        body = self.rfile.read(int(headers.get("content-length", "0")))
        return Call(method, path, headers, body)

    def _answer(self, call: Call, status: int) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        body = json.dumps({"headers": call.headers, "status": status, "filler": "x" * 2_000}).encode()
        head = f"HTTP/1.1 {status} Word\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + (b"" if call.method == "HEAD" else body))

    def _stream(self, call: Call, pieces: queue.Queue[bytes | None]) -> None:
        self.wfile.write(STREAM_HEAD)
        if call.method == "HEAD":
            return
        while (piece := pieces.get(timeout=PATIENCE_S)) is not None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    upstream: Upstream

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that the other side cut is what the tests are about."""


class Upstream:
    """Listens while the `with` block runs."""

    def __init__(self, port: int = 0) -> None:
        self.behaviour = Behaviour()
        self.calls: list[Call] = []
        self.connections = 0
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.upstream = self
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Upstream:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
