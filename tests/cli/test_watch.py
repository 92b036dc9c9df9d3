"""Watching over cut connections, restarts and pauses, against a small server that misbehaves on request."""

from __future__ import annotations

import hashlib
import json
import random
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from tests.cli.test_stream import frame
from tests.support.nursery import Said, command_line
from tests.support.processes import environment
from unbroken.cli import watch
from unbroken.cli.client import ApiError, Client
from unbroken.cli.stream import Event, Fold
from unbroken.cli.watch import Untrue, Watcher

WORDS = [f"wort{n} – 灯台 🔦\n" for n in range(200)]
TEXT = "".join(WORDS)


class Log(ThreadingHTTPServer):
    """Serves one task. `answers` holds what to do with the next connections to the stream: a status code, or
    a number of bytes after which to cut (None: all)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.frames = log_of(WORDS)
        self.answers: list[int | tuple[str, int]] = []
        self.cursors: list[str | None] = []
        self.state = "completed"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def log_of(words: list[str]) -> list[bytes]:
    frames, offset = [frame(1, "status", state="processing", attempt=1)], 0
    for number, word in enumerate(words, 2):
        frames.append(frame(number, "chunk", offset=offset, text=word, progress=number / len(words)))
        offset += len(word)
    digest = hashlib.sha256("".join(words).encode()).hexdigest()
    frames.append(frame(len(frames) + 1, "done", state="completed", length=offset, sha256=digest))
    return frames


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        log = cast(Log, self.server)
        if not self.path.endswith("/stream"):
            body = json.dumps({"task_id": "s0-x", "kind": "text", "state": log.state, "error": None}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        cursor = self.headers["Last-Event-ID"]
        log.cursors.append(cursor)
        action = log.answers.pop(0) if log.answers else 200
        if isinstance(action, int) and action != 200:
            self.send_response(action)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        after = int(cursor.split("-")[1]) if cursor else 0
        raw = b"retry: 100\n\n:\n" + b"".join(log.frames[after:])
        self.wfile.write(raw if isinstance(action, int) else raw[: action[1]])


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.setattr(watch, "PAUSE_GRACE_S", 0.01)
    server = Log()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Silent:
    """A view for tests."""

    def __init__(self) -> None:
        self.restarts = 0

    def event(self, event: Event, fold: Fold) -> None:
        """Nothing."""

    def connection(self, words: str) -> None:
        """Nothing."""

    def restart(self) -> None:
        self.restarts += 1


def watcher(log: Log, client: Client, **options: Any) -> Watcher:
    return Watcher(client, "s0-x", Silent(), _sleep=lambda _: None, **options)


def test_cut_anywhere_the_text_is_exact(log: Log) -> None:
    chance = random.Random(5)
    log.answers = [("cut", chance.randint(0, 3000)) for _ in range(30)]
    with Client(log.url) as client:
        seen = watcher(log, client)
        assert seen.run() == "completed"
    assert seen.fold.text == TEXT
    assert seen.fold.rewinds == 0
    assert len(log.cursors) > 10


def test_a_server_that_is_away_for_a_while_is_waited_for(log: Log) -> None:
    log.answers = [("cut", 2000), 503, 502, 429, ("cut", 0), 200]
    with Client(log.url) as client:
        seen = watcher(log, client)
        assert seen.run() == "completed"
    assert seen.fold.text == TEXT


def test_a_hole_begins_again_from_the_start(log: Log) -> None:
    whole = list(log.frames)
    log.frames = whole[:5] + whole[9:]
    view = Silent()

    def repair(_: float) -> None:
        log.frames = whole

    with Client(log.url) as client:
        seen = Watcher(client, "s0-x", view, _sleep=repair)
        assert seen.run() == "completed"
    assert seen.fold.text == TEXT
    assert view.restarts == 1
    assert log.cursors == [None, None]


def test_a_wrong_digest_is_told(log: Log) -> None:
    log.frames[-1] = frame(len(log.frames), "done", state="completed", length=len(TEXT), sha256="0" * 64)
    with Client(log.url) as client, pytest.raises(Untrue, match="unbroken result"):
        watcher(log, client).run()


def test_a_pause_ends_the_watch_unless_asked_to_wait(log: Log) -> None:
    whole = list(log.frames)
    log.frames = [*whole[:5], frame(6, "status", state="paused", reason="worker_lost", attempt=1)]
    log.state = "paused"
    with Client(log.url) as client:
        seen = watcher(log, client)
        assert seen.run() == "paused"
        assert seen.fold.reason == "worker_lost"

        def recovered(_: float) -> None:
            # n counts on: the rest of the text follows the pause
            log.frames = [*log.frames[:6], *(renumbered(whole[5:], 7))]

        patient = Watcher(client, "s0-x", Silent(), wait=True, _sleep=recovered)
        assert patient.run() == "completed"
        assert patient.fold.text == TEXT


def renumbered(frames: list[bytes], first: int) -> list[bytes]:
    tails = [raw.partition(b"\n")[2] for raw in frames]
    return [f"id: 8-{n}\n".encode() + tail for n, tail in enumerate(tails, first)]


def test_nothing_behind_the_cursor_is_the_end(log: Log) -> None:
    log.answers = [("cut", 4000), 204]
    log.state = "cancelled"
    with Client(log.url) as client:
        assert watcher(log, client).run() == "cancelled"


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_what_will_not_change_is_told_at_once(log: Log, status: int) -> None:
    log.answers = [status]
    with Client(log.url) as client, pytest.raises(ApiError) as refused:
        watcher(log, client).run()
    assert refused.value.status == status
    assert len(log.cursors) == 1


async def cli(*arguments: str) -> Said:
    return await command_line(*arguments, env=environment())


def test_a_pipe_gets_the_bytes_of_the_text_and_nothing_else(log: Log) -> None:
    log.answers = [("cut", 1500), ("cut", 10), ("cut", 3000)]
    command = [sys.executable, "-m", "unbroken", "watch", "s0-x", "--url", log.url]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, TEXT.encode(), b"")


@pytest.mark.parametrize(
    ("name", "data", "code", "says"),
    [
        ("failed", {"state": "failed", "error": {"code": "refused", "message": "No."}}, 1, b"refused: No."),
        ("cancelled", {"state": "cancelled"}, 4, b"cancelled"),
    ],
)
async def test_the_exit_code_tells_the_end(log: Log, name: str, data: dict[str, Any], code: int, says: bytes) -> None:
    log.frames = [*log.frames[:3], frame(4, name, **data)]
    done = await cli("watch", "s0-x", "--url", log.url)
    assert done.code == code
    assert done.out == "".join(WORDS[:2]).encode()
    assert says in done.err


async def test_json_lines_for_scripts(log: Log) -> None:
    done = await cli("watch", "s0-x", "--json", "--url", log.url)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["id"] for line in lines] == [f"7-{n}" for n in range(1, len(log.frames) + 1)]
    assert lines[-1]["event"] == "done"


async def test_nobody_there_is_one_sentence() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as unused:
        port = unused.server_address[1]
    for command in (("submit", "hi"), ("watch", "s0-x"), ("list",), ("stats",), ("replay", "--all")):
        done = await cli(*command, "--url", f"http://127.0.0.1:{port}")
        assert done.code == 1
        assert done.out == b""
        assert b"no server answers at http://127.0.0.1" in done.err
        assert b"Traceback" not in done.err
