"""nginx between browser and servers: the shipped files under a real nginx."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.deploy.conftest import Front
from tests.deploy.nginx import SHIPPED, Nginx, free_ports
from tests.deploy.upstream import Upstream
from tests.support.wait import until_sync
from unbroken.tasks.settings import Settings

STREAMS = ["/api/tasks/abc/stream", "/api/stream?task=a&task=b"]


def problem(answer: httpx.Response, status: int) -> dict[str, object]:
    """The body of a problem answer, checked for its shape."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    body: dict[str, object] = answer.json()
    assert body["status"] == status
    assert body["title"]
    assert set(body) == {"type", "title", "status", "detail"}
    return body


# Streams


@pytest.mark.parametrize("path", STREAMS)
def test_each_piece_of_a_stream_arrives_before_the_next_is_sent(front: Front, path: str) -> None:
    pieces = [b"retry: 1500\n\n", *(b"id: 1-%d\nevent: chunk\ndata: {}\n\n" % n for n in range(1, 20))]
    front.one.behaviour.stream = front.two.behaviour.stream
    with front.client.stream("GET", path, headers={"Accept-Encoding": "gzip, br"}) as answer:
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers
        assert answer.headers["cache-control"] == "no-store, no-transform"
        arriving = answer.iter_raw()
        for piece in pieces:
            front.one.behaviour.stream.put(piece)
            got = b""
            while len(got) < len(piece):
                got += next(arriving)
            assert got == piece
        front.one.behaviour.stream.put(None)
        assert b"".join(arriving) == b""


def test_the_head_of_a_stream_arrives_before_its_first_byte(front: Front) -> None:
    with front.client.stream("GET", STREAMS[0]) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize("path", STREAMS)
def test_head_of_a_stream_is_answered_without_a_body(front: Front, path: str) -> None:
    answer = front.client.head(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"


def test_a_reload_in_the_middle_of_a_stream_does_not_touch_it(front: Front) -> None:
    front.one.behaviour.stream = pieces = front.two.behaviour.stream
    with front.client.stream("GET", STREAMS[0]) as answer:
        arriving = answer.iter_raw()
        pieces.put(b"data: 1\n\n")
        assert next(arriving) == b"data: 1\n\n"
        old = front.nginx.workers()
        front.nginx.reload()
        assert httpx.get(f"{front.nginx.url}/api/tasks").status_code == 200, "new processes answer"
        pieces.put(b"data: 2\n\n")
        assert next(arriving) == b"data: 2\n\n"
        pieces.put(None)
        assert b"".join(arriving) == b""
    until_sync(lambda: not old & front.nginx.workers(), "the old processes to leave after their last stream")


def test_timeouts_are_well_above_the_heartbeat() -> None:
    site = (SHIPPED / "site.conf").read_text()
    stream = re.search(r"stream\$ \{(.*?)\}", site, re.DOTALL)
    assert stream is not None
    read = re.search(r"proxy_read_timeout (\d+)s;", stream[1])
    send = re.search(r"send_timeout (\d+)s;", (SHIPPED / "http.conf").read_text())
    assert read is not None
    assert send is not None
    heartbeat = Settings().heartbeat_s
    assert int(read[1]) >= 4 * heartbeat
    assert int(send[1]) >= 3 * heartbeat


# Several servers


def test_reading_heals_when_a_server_dies_before_its_answer(front: Front) -> None:
    front.one.behaviour.dies = {"GET"}
    assert [front.client.get("/api/tasks").status_code for _ in range(6)] == [200] * 6
    assert front.one.calls, "the dying server was asked at least once"


def test_a_post_that_reached_a_dying_server_is_not_sent_again(front: Front) -> None:
    front.one.behaviour.dies = front.two.behaviour.dies = {"POST"}
    answer = front.client.post("/api/tasks", json={"kind": "text"})
    body = problem(answer, 502)
    assert "Idempotency-Key" in str(body["detail"])
    assert answer.headers["retry-after"] == "1"
    assert front.calls == 1


def test_a_post_into_a_kept_connection_that_dies_is_not_sent_again(front: Front) -> None:
    for _ in range(4):
        assert front.client.get("/api/tasks").status_code == 200
    before = front.calls
    front.one.behaviour.dies = front.two.behaviour.dies = {"POST"}
    problem(front.client.post("/api/tasks", json={}), 502)
    assert front.calls == before + 1


def test_a_post_goes_to_the_other_server_when_one_cannot_be_reached(page: Path) -> None:
    (closed,) = free_ports(1)
    with Upstream() as up, Nginx([closed, up.port], static=page) as nginx:
        answers = [httpx.post(f"{nginx.url}/api/tasks", json={}).status_code for _ in range(4)]
    assert answers == [200] * 4
    assert len(up.calls) == 4


def test_an_answer_of_a_server_is_passed_on_as_it_is_and_asked_for_once(front: Front) -> None:
    for status in (409, 422, 500, 503):
        front.one.behaviour.status = front.two.behaviour.status = status
        before = front.calls
        answer = front.client.get("/api/tasks/abc/result")
        assert answer.status_code == status
        assert answer.json()["headers"], "the server's own body"
        assert front.calls == before + 1


def test_connections_to_the_servers_are_kept(front: Front) -> None:
    for _ in range(40):
        front.client.get("/api/tasks")
    assert front.calls == 40
    assert front.one.connections + front.two.connections <= 4


def test_the_servers_are_told_who_asks_and_not_what_a_client_claims(front: Front) -> None:
    told = front.client.get(
        "/api/tasks",
        headers={"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil"},
    ).json()["headers"]
    assert told["x-forwarded-for"] == "127.0.0.1"
    assert told["x-forwarded-proto"] == "http"
    assert told["host"] == told["x-forwarded-host"] == f"127.0.0.1:{front.nginx.port}"
    assert told.get("connection", "") == ""


def test_it_starts_while_the_names_of_the_servers_are_not_known_yet(page: Path) -> None:
    with Nginx([1, 2], static=page) as nginx:
        (nginx.folder / "etc" / "upstream.conf").write_text((SHIPPED / "upstream.conf").read_text())
        checked = subprocess.run([*nginx.arguments(), "-t"], capture_output=True, text=True, timeout=30, check=False)
    assert checked.returncode == 0, checked.stderr


# Errors and limits


def test_nobody_behind_it_is_a_problem_in_words(page: Path) -> None:
    with Nginx(free_ports(2), static=page) as nginx:
        for path in ("/api/tasks", *STREAMS, "/readyz"):
            answer = httpx.get(nginx.url + path)
            problem(answer, 502)
            assert answer.headers["retry-after"] == "1"
        assert httpx.get(nginx.url).status_code == 200, "the page itself needs no server"


def test_a_body_above_the_limit_is_refused_here(front: Front) -> None:
    problem(front.client.post("/api/tasks", content=b"x" * (Settings().body_max + 1)), 413)
    assert front.calls == 0
    assert front.client.post("/api/tasks", content=b"x" * Settings().body_max).status_code == 200
    assert sum(len(call.body) for up in (front.one, front.two) for call in up.calls) == Settings().body_max


def test_too_many_tries_to_sign_in_are_refused(front: Front) -> None:
    answers = [front.client.post("/api/session", json={"key": "guess"}) for _ in range(40)]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) >= 10
    problem(refused[0], 429)
    assert refused[0].headers["retry-after"] == "1"
    assert front.client.get("/api/session").status_code == 200, "asking who I am is not a try"


def test_too_many_connections_of_one_address_are_refused(page: Path) -> None:
    with Upstream() as up, Nginx([up.port], static=page, connections=3) as nginx:
        with httpx.Client(base_url=nginx.url) as client:
            open_ones = [client.stream("GET", STREAMS[0]) for _ in range(3)]
            for stream in open_ones:
                assert stream.__enter__().status_code == 200
            problem(httpx.get(nginx.url + STREAMS[0]), 429)
            for stream in open_ones:
                stream.__exit__(None, None, None)
        until_sync(lambda: httpx.get(f"{nginx.url}/api/tasks").status_code == 200, "places to be free again")


def test_a_flood_of_calls_is_slowed_down(front: Front) -> None:
    wanted = 1_500
    asks = b"HEAD /api/tasks HTTP/1.1\r\nHost: x\r\n\r\n" * (wanted - 1)
    asks += b"HEAD /api/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", front.nginx.port), timeout=60) as flood:
        flood.sendall(asks)
        answers = b""
        while block := flood.recv(65_536):
            answers += block
    assert answers.count(b"HTTP/1.1 200") + answers.count(b"HTTP/1.1 429") == wanted
    assert answers.count(b"HTTP/1.1 200") >= 400, "a burst is fine"
    assert answers.count(b"HTTP/1.1 429") > 0


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /api/" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n", 400),
    ],
)
def test_requests_that_are_no_requests_are_problems_too(front: Front, sent: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", front.nginx.port), timeout=20) as raw:
        raw.sendall(sent)
        answer = b""
        while block := raw.recv(65_536):
            answer += block
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] in (status, 494)
    assert front.calls == 0


def test_a_long_vector_cursor_passes(front: Front) -> None:
    asked = "&".join(f"task=s0-{n:032x}" for n in range(100))
    cursor = ",".join(f"1700000000000-{n}" for n in range(100)) * 4
    answer = front.client.head(f"/api/stream?{asked}", headers={"Last-Event-ID": cursor})
    assert answer.status_code == 200


# The page


def test_the_page_is_asked_for_again_and_answered_by_its_etag(front: Front) -> None:
    for path in ("/", "/static/stream/fold.js"):
        first = front.client.get(path)
        assert first.status_code == 200
        assert first.headers["cache-control"] == "no-cache"
        again = front.client.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["cache-control"] == "no-cache"
    assert front.calls == 0


def test_files_have_types_are_compressed_and_end_at_their_folder(front: Front) -> None:
    script = front.client.get("/static/stream/fold.js", headers={"Accept-Encoding": "gzip"})
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["content-encoding"] == "gzip"
    assert script.headers["vary"] == "Accept-Encoding"
    assert front.client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    problem(front.client.get("/static/none.js"), 404)
    problem(front.client.get("/static/"), 404)
    problem(front.client.get("/.problem"), 404)
    for path in ("/static/%2e%2e/etc/nginx.conf", "/static/..%2fetc/nginx.conf", "/static../etc/nginx.conf"):
        answer = front.client.get(path)
        assert b"worker_processes" not in answer.content


def test_answers_of_the_api_are_compressed(front: Front) -> None:
    answer = front.client.get("/api/tasks", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"


def test_nothing_tells_the_version(front: Front) -> None:
    for path in ("/", "/api/tasks", "/static/none.js"):
        answer = front.client.get(path)
        assert answer.headers["server"] == "nginx"
        assert not re.search(r"nginx/\d", answer.text)


def test_the_log_holds_paths_without_queries(front: Front) -> None:
    front.client.get("/api/tasks?cursor=not-for-the-log", headers={"Authorization": "Bearer not-for-the-log"})
    logged = until_sync(
        lambda: [line for line in front.nginx.output.read_text().splitlines() if line.startswith("{")], "a log line"
    )
    entry = json.loads(logged[-1])
    assert (entry["method"], entry["path"], entry["status"]) == ("GET", "/api/tasks", 200)
    assert "not-for-the-log" not in front.nginx.output.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_it_leaves_on_a_signal(front: Front, number: signal.Signals) -> None:
    front.client.get("/api/tasks")
    front.client.close()
    assert front.nginx.stop(number) == 0
