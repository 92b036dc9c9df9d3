"""Redis goes away and comes back; the server is killed and started: viewers lose nothing (G2, G15)."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from tests.server.asking import GOOD, problem
from tests.server.author import begin
from tests.server.site import View, parse, running, watching
from tests.support.desk import Desk
from tests.support.valkey import Valkey
from tests.support.wait import until
from unbroken.tasks.settings import Settings, as_env


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[Valkey, Desk]]:
    """A Valkey that may be killed, and its desk."""
    with Valkey(aof=True) as valkey:
        redis = Redis.from_url(valkey.url)
        settings = Settings(redis_url=valkey.url, lease_s=60, data_dir=tmp_path, submits_per_minute=0, heartbeat_s=0.4)
        try:
            yield valkey, Desk(redis, settings)
        finally:
            await redis.aclose()


async def _ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def test_redis_restarts_under_viewers(own: tuple[Valkey, Desk]) -> None:
    valkey, desk = own
    with running(desk.settings) as site:
        async with httpx.AsyncClient(base_url=site.url, timeout=60, trust_env=False) as client:
            author = await begin(desk)
            await author.write("before ")
            async with watching(client, author.task.id) as reading:
                await reading.until(b"before")
                valkey.kill()
                answer = await client.post("/api/tasks", json=GOOD)
                problem(answer, 503)
                assert answer.headers["retry-after"]
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.get("/readyz")).status_code == 503
                metrics = (await client.get("/metrics")).status_code
                assert metrics in (200, 503)
                seen = reading.raw.count(b":\n")
                while reading.raw.count(b":\n") < seen + 3:
                    assert await reading.more(), "the stream must survive"
                valkey.start()
                await until(lambda: _ready(client), "the server to be ready again")
                await author.write("after")
                await author.complete()
                view = View().take_all(await reading.rest())
            assert (view.text, view.end) == ("before after", "done")


async def test_a_viewer_who_comes_during_the_outage_waits_with_a_heartbeat(own: tuple[Valkey, Desk]) -> None:
    """The feed is down but the record was just read: headers and heartbeats at once, the text when Redis is back."""
    valkey, desk = own
    with running(desk.settings) as site:
        async with httpx.AsyncClient(base_url=site.url, timeout=60, trust_env=False) as client:
            author = await begin(desk)
            await author.write("text")
            await desk.redis.execute_command("CLIENT", "PAUSE", "3000", "ALL")
            answer = asyncio.create_task(client.get(f"/api/tasks/{author.task.id}"))
            assert (await answer).json()["length"] == 4
            async with watching(client, author.task.id) as reading:
                await reading.until(b"text")
    assert valkey.process is not None


async def test_a_silent_redis_is_noticed(own: tuple[Valkey, Desk]) -> None:
    """SIGSTOP: connections stand and nothing answers."""
    valkey, desk = own
    with running(desk.settings) as site:
        async with httpx.AsyncClient(base_url=site.url, timeout=60, trust_env=False) as client:
            author = await begin(desk)
            await author.write("before ")
            async with watching(client, author.task.id) as reading:
                await reading.until(b"before")
                valkey.signal(signal.SIGSTOP)
                try:
                    await until(lambda: _not_ready(client), "readyz to say no")
                    seen = len(reading.raw)
                    await reading.more()
                    assert reading.raw[seen:].strip(b":\n") == b""
                finally:
                    valkey.signal(signal.SIGCONT)
                await author.write("after")
                await author.complete()
                view = View().take_all(await reading.rest())
            assert (view.text, view.end) == ("before after", "done")


async def _not_ready(client: httpx.AsyncClient) -> bool:
    return not await _ready(client)


async def test_a_full_redis_says_so(own: tuple[Valkey, Desk]) -> None:
    _, desk = own
    with running(desk.settings) as site:
        async with httpx.AsyncClient(base_url=site.url, timeout=60, trust_env=False) as client:
            task = await desk.submit()
            await desk.redis.config_set("maxmemory", "1mb")
            problem(await client.post("/api/tasks", json=GOOD), 507)
            assert (await client.post(f"/api/tasks/{task.id}/cancel")).status_code == 200
            await desk.redis.config_set("maxmemory", "0")
            assert (await client.post("/api/tasks", json=GOOD)).status_code == 201


def start(settings: Settings, port: int) -> subprocess.Popen[bytes]:
    """A server process."""
    env = as_env(settings.model_copy(update={"port": port})) | {"PYTHONUNBUFFERED": "1"}
    with (settings.data_dir / "server.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "unbroken", "server"], env=env, stdout=log, stderr=log)


async def test_the_server_is_killed_and_started_under_viewers(own: tuple[Valkey, Desk]) -> None:
    _, desk = own
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = start(desk.settings, port)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            await until(lambda: _serves(client), "the server to answer", within=60)
            author = await begin(desk)
            view = View()
            for how in (signal.SIGKILL, signal.SIGTERM):
                await author.write(f"{how.name} ")
                async with watching(client, author.task.id, view.last or None) as reading:
                    await reading.until(how.name.encode())
                    process.send_signal(how)
                    try:
                        await reading.rest()
                        assert how is signal.SIGTERM, "a killed server cannot end a stream in order"
                    except httpx.RemoteProtocolError:
                        assert how is signal.SIGKILL, "a stopped server ends its streams in order"
                for frame in parse(reading.raw):
                    view.take(frame)
                code = await asyncio.to_thread(process.wait, 20)
                if how is signal.SIGTERM:
                    assert code == 0, (desk.settings.data_dir / "server.log").read_text()
                process = start(desk.settings, port)
                await until(lambda: _serves(client), "the server to answer again", within=60)
            await author.write("end")
            await author.complete()
            async with watching(client, author.task.id, view.last) as reading:
                view.take_all(await reading.rest())
        assert (view.text, view.end) == ("SIGKILL SIGTERM end", "done")
        log = (desk.settings.data_dir / "server.log").read_text()
        assert "Traceback" not in log, log
    finally:
        process.kill()
        process.wait()


async def _serves(client: httpx.AsyncClient) -> bool:
    try:
        return await _ready(client)
    except httpx.TransportError:
        return False
