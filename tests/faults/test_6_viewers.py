"""Connections to viewers break in every way; slow viewers cost little and hurt nobody; servers stop under load."""

from __future__ import annotations

import asyncio
import random
import socket
import struct

import psutil

from tests.chaos.people import Wanderer
from tests.faults.ground import direct, lines
from tests.support.api import scripted, story
from tests.support.nursery import QuickStack
from tests.support.processes import Stack
from tests.support.proxy import Proxy
from tests.support.viewer import Viewer
from tests.support.wait import until


def place(url: str) -> str:
    return url.removeprefix("http://")


async def test_servers_stop_under_load_and_viewers_go_on_elsewhere() -> None:
    async with QuickStack(servers=2, workers=1, concurrency=6) as stack:
        ids = [(await stack.api.submit(scripted(seed=n, tokens=250, rate=40)))["task_id"] for n in range(5)]
        viewers = [Wanderer("", ids[n % 5], urls=stack.urls, chance=random.Random(n)) for n in range(40)]
        watching = asyncio.gather(*(viewer.follow(within=90) for viewer in viewers))
        for number in (0, 1):
            await asyncio.gather(*(viewer.seen(200 + 400 * number) for viewer in viewers))
            assert await stack.servers[number].stop(within=20) == 0
            assert not lines(stack.servers[number].log, "Traceback")
            await stack.start_server(number)
        await watching
        for n, viewer in enumerate(viewers):
            viewer.check()
            assert viewer.text == story(seed=n % 5, tokens=250)
            assert viewer.rewinds == 0


async def test_frames_arrive_byte_by_byte_and_break_anywhere() -> None:
    """One-byte segments, resets in the middle of a frame, and a network that holds everything for a while."""
    async with QuickStack(heartbeat_s=1) as stack, Proxy(place(stack.url)) as proxy:
        task_id = (await stack.api.submit(scripted(tokens=300, rate=60)))["task_id"]
        viewers = [Viewer(proxy.url, task_id) for _ in range(6)]
        watching = asyncio.gather(*(viewer.follow() for viewer in viewers))
        chance = random.Random(4)
        await asyncio.gather(*(viewer.seen(100) for viewer in viewers))
        for _ in range(12):
            proxy.cut_after = chance.randrange(300, 3_000)
            proxy.segment = chance.choice([0, 1, 7])
            await asyncio.sleep(0.1)
            proxy.cut()
        proxy.hold()
        await asyncio.sleep(2.5)
        proxy.cut_after, proxy.segment = None, 1
        proxy.release()
        proxy.cut()
        await watching
        for viewer in viewers:
            viewer.check()
            assert viewer.text == story(tokens=300)
            assert viewer.rewinds == 0
            assert viewer.connections > 3


async def test_viewers_that_do_not_read_cost_little_and_miss_nothing() -> None:
    """G4: forty of them hold still while megabytes are written; a good viewer is not delayed; all catch up."""
    tokens = 150_000
    async with QuickStack() as stack, Proxy(place(stack.url)) as proxy:
        task_id = (await stack.api.submit(scripted(tokens=tokens, rate=60_000)))["task_id"]
        server = psutil.Process(stack.servers[0].pid)
        proxy.receive = 8 * 1024
        proxy.hold()
        still = [Viewer(proxy.url, task_id) for _ in range(40)]
        late = asyncio.gather(*(viewer.follow(within=100) for viewer in still))
        await until(lambda: len(proxy.links) == 40, "forty connections")
        before = server.memory_info().rss
        good = await Viewer(stack.url, task_id).follow(within=60)
        good.check()
        text = story(tokens=tokens)
        assert good.text == text
        grown = server.memory_info().rss - before
        assert grown < 60 * 1024 * 1024, f"{grown / 1e6:.0f} MB for {len(text.encode()) / 1e6:.1f} MB of text"
        proxy.release()
        await late
        for viewer in still:
            viewer.check()
            assert viewer.text == text


async def test_a_thousand_connections_that_are_reset_at_once() -> None:
    """Subscriptions, files and connections to Redis come back to where they were."""
    async with QuickStack() as stack, direct(stack) as desk:
        task_id = (await stack.api.submit(scripted(tokens=5_000, rate=20)))["task_id"]
        server = psutil.Process(stack.servers[0].pid)
        await stack.api.until_length(task_id, 10)
        files, clients = server.num_fds(), len(await desk.redis.client_list())
        host, port = place(stack.url).split(":")
        asked = f"GET /api/tasks/{task_id}/stream HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        for n in range(1_000):
            raw = socket.create_connection((host, int(port)))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.sendall(asked if n % 3 else asked[: n % 40])
            raw.close()
            if n % 50 == 0:
                await asyncio.sleep(0)
        await until(lambda: server.num_fds() <= files + 3, "all files to be closed")
        assert len(await desk.redis.client_list()) <= clients + 3
        await until(lambda: no_viewers(stack), "the gauge of viewers to be 0")
        assert not lines(stack.servers[0].log, "Traceback|Error")
        viewer = await Viewer(stack.url, task_id).until_length(20)
        assert viewer.connections == 1
        await stack.api.post(task_id, "cancel")


async def no_viewers(stack: Stack) -> bool:
    return "\nunbroken_viewers 0.0\n" in (await stack.api.http.get("/metrics")).text
