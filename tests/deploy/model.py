"""A model server by URL, as compose.yaml wants one: OpenAI's chat protocol, one word at a time, as many
as the prompt says, and it goes on from the text that a request ends with."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, cast

PATIENCE_S = 20.0


def story(words: int) -> str:
    """The text of a request whose prompt is this number."""
    return "".join(f"word{n}{'é🌊' if n % 7 == 0 else ''} " for n in range(words)).rstrip()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        model = cast(_Server, self.server).model
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model.seen.append((self.headers.get("authorization", ""), body))
        last = body["messages"][-1]
        so_far = last["content"] if last["role"] == "assistant" else ""
        whole = story(int(next(turn["content"] for turn in body["messages"] if turn["role"] == "user")))
        assert whole.startswith(so_far), "asked to continue another text"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for word in whole[len(so_far) :].split(" "):
            model.wait()
            text = word if so_far.endswith(" ") or not so_far else f" {word}"
            so_far += text
            self._send({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _send(self, data: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", **data}).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    model: Model

    def handle_error(self, request: object, client_address: object) -> None:
        """A killed worker's connection breaks; that is the point."""


class Model:
    """Serves while the `with` block runs. pause_s: before each word, in ordinary times.

    In a `stepping` block no word goes out unless the test lets it: one for each call of what the block gives."""

    def __init__(self, *, pause_s: float = 0.015) -> None:
        self.pause_s = pause_s
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._steps: threading.Semaphore | None = None
        self._ended = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self

    def wait(self) -> None:
        """Until the next word may go."""
        steps = self._steps
        if steps is None:
            self._ended.wait(self.pause_s)
        else:
            steps.acquire(timeout=PATIENCE_S)

    @contextmanager
    def stepping(self) -> Iterator[Callable[[], None]]:
        """See the class. At the end, everything that waits goes on."""
        steps = self._steps = threading.Semaphore(0)
        try:
            yield steps.release
        finally:
            self._steps = None
            steps.release(1_000_000)

    @property
    def url(self) -> str:
        """For UNBROKEN_BACKEND_URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Model:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
