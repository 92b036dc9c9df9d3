"""Callbacks on real sockets: signed, repeated until heard, never to places that are not the owner's to call; and
results that outlive their time in Redis."""

from __future__ import annotations

import asyncio
import json
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook

from tests.server.site import running
from tests.support.desk import Desk
from tests.support.wait import until, until_sync
from unbroken.server import callbacks
from unbroken.server.context import Services
from unbroken.tasks import keys
from unbroken.tasks.settings import Settings

SECRET = "whsec_" + "c2VjcmV0LWZvci10ZXN0cy1vbmx5" * 2


@dataclass
class Ear:
    """A receiver that answers as told and remembers what it heard."""

    url: str
    answers: list[int] = field(default_factory=list)
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def ear() -> Iterator[Ear]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.heard.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(found.answers.pop(0) if found.answers else 204)
            self.send_header("location", found.url + "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Ear(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
async def calling(desk: Desk, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A server that may call this machine."""
    allowed = settings.model_copy(update={"webhook_secret": _secret(), "webhook_private": True})
    with running(allowed) as site:
        async with httpx.AsyncClient(base_url=site.url, timeout=20, trust_env=False) as client:
            yield client


def _secret() -> SecretStr:
    return SecretStr(SECRET)


def body(url: str) -> dict[str, Any]:
    return {"kind": "text", "input": {"prompt": "x"}, "callback": url}


async def test_an_end_is_told_signed_and_again_until_it_is_heard(
    calling: httpx.AsyncClient, desk: Desk, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "WAITS_S", (0.05,))
    ear.answers = [503, 302]
    made = await calling.post("/api/tasks", json=body(ear.url + "/hook"))
    assert made.status_code == 201
    held = await desk.claim()
    await desk.write(held.lease, "secret text", at=0, batch=1)
    await desk.complete(held.lease, "secret text")
    await until(lambda: len(ear.heard) == 3, "two refusals, then heard", within=20)
    assert len({headers["webhook-id"] for headers, _ in ear.heard}) == 1, "a receiver can tell a repeat"
    for headers, raw in ear.heard:
        event = Webhook(SECRET).verify(raw, headers)
        assert event["type"] == "task.completed"
        assert event["data"]["task_id"] == held.lease.task_id
        assert b"secret text" not in raw
    task = await desk.store.get(held.lease.task_id, None)
    await until(lambda: _is(desk, task.id, "delivered"), "the outcome to be stored")


async def _is(desk: Desk, task_id: str, outcome: str) -> bool:
    return (await desk.store.get(task_id, None)).text("callback_state") == outcome


@contextmanager
def hostile(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A receiver that does to each connection whatever the test wants. Gives its address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            with suppress(OSError):
                answer(self.request)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _ended(calling: httpx.AsyncClient, desk: Desk, url: str) -> str:
    """A completed task with a callback to this address."""
    await calling.post("/api/tasks", json=body(url))
    held = await desk.claim()
    await desk.complete(held.lease, "")
    return held.lease.task_id


async def test_a_receiver_that_never_ends_its_answer_holds_up_nobody(
    calling: httpx.AsyncClient, desk: Desk, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "TIMEOUT_S", 3.0)
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not over.wait(0.1):  # no silence is ever long enough for a timeout of one read
            connection.sendall(b"x-more: yes\r\n")

    with hostile(drip) as url:
        try:
            slow = await _ended(calling, desk, url)
            await until(lambda: _tries(desk, slow), "the slow receiver to be called")
            await _ended(calling, desk, ear.url)
            await until(lambda: ear.heard, "the other receiver to be called")
            assert not (await desk.store.get(slow, None)).text("callback_state"), "the slow one is still under way"
            assert (await calling.get("/readyz")).status_code == 200
            await until(lambda: _is(desk, slow, "no answer within 3 s"), "one time limit for the whole call")
        finally:
            over.set()


async def _tries(desk: Desk, task_id: str) -> bool:
    return (await desk.store.get(task_id, None)).num("callback_tries") > 0


async def test_an_answer_without_an_end_is_not_read(calling: httpx.AsyncClient, desk: Desk) -> None:
    sent, cut = [0], threading.Event()

    def flood(connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                sent[0] += connection.send(b"x" * 65_536)
        except OSError:
            cut.set()

    with hostile(flood) as url:
        task_id = await _ended(calling, desk, url)
        await until(lambda: _is(desk, task_id, "delivered"), "the status to be enough")
        await until(cut.is_set, "the connection to be closed")
    assert sent[0] < 64 * 1024 * 1024, "what fits into the kernel's buffers and no more"


@pytest.mark.parametrize(
    ("name", "value"), [("state", "dreaming"), ("callback_tries", "many"), ("max_attempts", "x"), ("created", "9e999")]
)
async def test_a_damaged_record_harms_only_its_own_callback(
    desk: Desk, settings: Settings, ear: Ear, name: str, value: str
) -> None:
    bad, sound = [(await desk.submit(callback=ear.url)).id for _ in range(2)]
    for _ in range(2):
        await desk.complete((await desk.claim()).lease, "")
    await desk.redis.hset(keys.key("task", bad), name, value)
    allowed = settings.model_copy(update={"webhook_secret": _secret(), "webhook_private": True})
    with running(allowed) as site:
        await until(lambda: ear.heard, "the sound one to be called", within=20)
        (loop,) = [loop for loop in site.services.loops if loop.name == "callbacks"]
        await until(lambda: loop.finished, "the loop to have done its work")
    assert [_data(raw)["task_id"] for _, raw in ear.heard] == [sound]


def _data(raw: bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(raw)["data"]
    return data


async def test_a_receiver_that_is_gone_is_not_called_again(calling: httpx.AsyncClient, desk: Desk, ear: Ear) -> None:
    ear.answers = [410]
    await calling.post("/api/tasks", json=body(ear.url))
    held = await desk.claim()
    await desk.fail(held.lease, retryable=False)
    await until(lambda: _is(desk, held.lease.task_id, "status 410"), "the outcome to be stored")
    assert await desk.redis.zcard("ub:{s0}:hooks") == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x", "http://localhost:8/x", "http://[::1]/x", "http://10.0.0.1/", "http://169.254.169.254/",
        "http://[::ffff:127.0.0.1]/", "http://192.168.1.1/", "http://0.0.0.0/", "https://u:p@example.org/",
        "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::1]/", "http://[::127.0.0.1]/", "http://[fec0::1]/",
        "http://[2001:0:4136:e378:8000:63bf:5601:5601]/", "http://[::ffff:0:7f00:1]/", "http://[fe80::1%25lo]/",
        "http://[64:ff9b:1::a00:1]/", "http://[ff0e::1]/", "http://printer.local/", "ftp://example.org/",
        "http://", "http://[", "x",
    ],
)  # fmt: skip
async def test_private_places_are_refused_when_the_task_is_submitted(desk: Desk, settings: Settings, url: str) -> None:
    with running(settings.model_copy(update={"webhook_secret": _secret()})) as site:
        answer = httpx.post(site.url + "/api/tasks", json=body(url), trust_env=False)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "callback"
    assert await desk.redis.keys("ub:*task:*") == []


@pytest.mark.parametrize(
    "url",
    ["http://8.8.8.8/", "http://[2606:4700::1111]/", "http://[64:ff9b::808:808]/", "http://[2002:808:808::1]/",
     "http://[::ffff:8.8.8.8]/", "https://example.org/hook"],
)  # fmt: skip
def test_public_places_may_be_called(settings: Settings, url: str) -> None:
    callbacks.check_url(url, settings.model_copy(update={"webhook_secret": _secret()}))


async def test_a_name_that_leads_to_a_private_place_is_refused_when_it_is_called() -> None:
    with pytest.raises(callbacks.Forbidden):
        await callbacks.resolve("localhost", 80, private=False)
    assert await callbacks.resolve("127.0.0.1", 80, private=True) == "127.0.0.1"


async def test_without_a_secret_callbacks_are_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/tasks", json=body("https://example.org/"))
    assert answer.status_code == 422


async def test_an_archived_result_is_served_after_redis_let_go_of_it(desk: Desk, settings: Settings) -> None:
    short = settings.model_copy(update={"archive": True, "result_s": 0.2, "record_s": 0.4})
    desk = Desk(desk.redis, short)
    with running(short) as site:
        made = httpx.post(site.url + "/api/tasks", json={"input": {"prompt": "x"}}, trust_env=False).json()
        held = await desk.claim()
        await desk.write(held.lease, "kept – for long", at=0, batch=1, chars=0)
        await desk.complete(held.lease, "kept – for long")
        (sweeper,) = [loop for loop in site.services.loops if loop.name == "sweeper"]

        def swept() -> bool:
            _step(site.services, sweeper)
            return httpx.get(site.url + made["links"]["self"], trust_env=False).status_code == 404

        until_sync(swept, "the record to be swept")
        answer = httpx.get(site.url + made["links"]["result"], trust_env=False)
        assert (answer.status_code, answer.text) == (200, "kept – for long")
        part = httpx.get(site.url + made["links"]["result"], headers={"range": "bytes=0-3"}, trust_env=False)
        assert (part.status_code, part.text) == (206, "kept")


def _step(services: Services, sweeper: Any) -> None:
    asyncio.run_coroutine_threadsafe(sweeper.step(), services.loop).result(10)


async def test_the_cache_answers_with_200_and_says_so(client: httpx.AsyncClient, desk: Desk) -> None:
    ask = {"input": {"prompt": "same"}, "cache_s": 60}
    first = await client.post("/api/tasks", json=ask)
    assert (first.status_code, first.json()["cached"]) == (201, False)
    held = await desk.claim()
    await desk.complete(held.lease, "")
    again = await client.post("/api/tasks", json=ask)
    assert (again.status_code, again.json()["cached"]) == (200, True)
    assert again.json()["task_id"] == first.json()["task_id"]
