"""What happens to the processes, the database and the connections: drawn from the seed, one thing after the other."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.chaos.history import History
from tests.support.processes import Process, Stack
from tests.support.redis_proxy import RedisProxy

LEASE_S = 2.0


class Weather:
    """Bad weather until `stop`; `calm` then brings everything back."""

    def __init__(self, stack: Stack, proxy: RedisProxy, history: History, *, workers: int) -> None:
        self.stack, self.proxy, self.history, self.crew = stack, proxy, history, workers
        self.chance = random.Random(f"{history.seed}:weather")
        self._kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self.kill_worker),
            (4, self.stop_worker),
            (4, self.freeze_worker),
            (2, self.kill_server),
            (1, self.stop_server),
            (1, self.freeze_server),
            (1, self.kill_redis),
            (1, self.freeze_redis),
            (2, self.kill_clients),
            (1, self.flush_scripts),
            (3, self.cut),
            (3, self.lose_replies),
            (1, self.slow),
            (1, self.hold),
        ]
        self._side: set[asyncio.Task[None]] = set()

    async def blow(self, until: float) -> None:
        """One fault after the other, until this time of the monotonic clock."""
        weights, deeds = zip(*self._kinds, strict=True)
        while time.monotonic() < until:
            await asyncio.sleep(self.chance.uniform(0.1, 1.2))
            deed = self.chance.choices(deeds, weights)[0]
            await deed()
            await self.crew_up()

    async def calm(self) -> None:
        """No more faults; everything that should run runs."""
        self.proxy.clear()
        self.proxy.release()
        self.proxy.delay_s = 0
        await asyncio.gather(*self._side)
        if self.stack.valkey.process is None:
            await asyncio.to_thread(self.stack.valkey.start)
        await self.crew_up()
        for number, server in enumerate(self.stack.servers):
            if not server.alive:
                await self.stack.start_server(number)

    async def crew_up(self) -> None:
        """As many workers as there should be; some die by themselves (poison tasks)."""
        for worker in [worker for worker in self.stack.workers if not worker.alive]:
            self.stack.workers.remove(worker)
            self.history.deed("worker found dead", worker.name)
        while len(self.stack.workers) < self.crew:
            await self.stack.start_worker()

    def _later(self, what: Awaitable[None]) -> None:
        task = asyncio.ensure_future(what)
        self._side.add(task)
        task.add_done_callback(self._side.discard)

    def _worker(self) -> Process:
        return self.chance.choice(self.stack.workers)

    # workers

    async def kill_worker(self) -> None:
        worker = self._worker()
        self.history.deed("kill -9 worker", worker.name)
        self.stack.workers.remove(worker)
        worker.kill()

    async def stop_worker(self) -> None:
        worker = self._worker()
        self.history.deed("SIGTERM worker", worker.name)
        self.stack.workers.remove(worker)
        self._later(self._stopped(worker))

    async def _stopped(self, worker: Process) -> None:
        try:
            code = await worker.stop(within=60)
        except TimeoutError:
            self.history.wrong.append(f"{worker.name} does not stop:\n{worker.tail(10)}")
            worker.kill()
            return
        if code == -signal.SIGTERM and "tasks at once" not in worker.tail(100_000):
            return  # it was only just starting, and held nothing
        if code not in (0, -signal.SIGKILL):  # a poison task may kill it while it hands over
            self.history.wrong.append(f"{worker.name} ended with {code} after SIGTERM:\n{worker.tail(10)}")

    async def freeze_worker(self) -> None:
        seconds = self.chance.uniform(0.2, 2.5 * LEASE_S)
        worker = self._worker()
        self.history.deed("SIGSTOP worker", f"{worker.name} {seconds:.1f} s")
        worker.freeze()
        self._later(self._thawed(worker, seconds))

    async def _thawed(self, process: Process, seconds: float) -> None:
        await asyncio.sleep(seconds)
        process.thaw()

    # servers

    async def kill_server(self) -> None:
        number = self.chance.randrange(len(self.stack.servers))
        self.history.deed("kill -9 server", self.stack.servers[number].name)
        self.stack.servers[number].kill()
        await self.stack.start_server(number)

    async def stop_server(self) -> None:
        number = self.chance.randrange(len(self.stack.servers))
        server = self.stack.servers[number]
        self.history.deed("SIGTERM server", server.name)
        if code := await server.stop(within=30):
            self.history.wrong.append(f"{server.name} ended with {code} after SIGTERM:\n{server.tail(10)}")
        await self.stack.start_server(number)

    async def freeze_server(self) -> None:
        seconds = self.chance.uniform(0.2, 2.0)
        server = self.chance.choice(self.stack.servers)
        self.history.deed("SIGSTOP server", f"{server.name} {seconds:.1f} s")
        server.freeze()
        await self._thawed(server, seconds)

    # the database

    async def kill_redis(self) -> None:
        self.history.deed("kill -9 database")
        await asyncio.to_thread(self.stack.valkey.kill)
        await asyncio.sleep(self.chance.uniform(0, 1.5))
        await asyncio.to_thread(self.stack.valkey.start)

    async def freeze_redis(self) -> None:
        seconds = self.chance.uniform(0.2, 1.5 * LEASE_S)
        self.history.deed("SIGSTOP database", f"{seconds:.1f} s")
        self.stack.valkey.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.stack.valkey.signal(signal.SIGCONT)

    async def _direct(self, *words: str) -> None:
        client: Any = Redis.from_url(self.stack.valkey.url)
        with contextlib.suppress(RedisError):
            await client.execute_command(*words)
        await client.aclose()

    async def kill_clients(self) -> None:
        which = self.chance.choice(["normal", "pubsub"])
        self.history.deed(f"CLIENT KILL {which}")
        await self._direct("CLIENT", "KILL", "TYPE", which)

    async def flush_scripts(self) -> None:
        self.history.deed("SCRIPT FLUSH")
        await self._direct("SCRIPT", "FLUSH")

    # the network to the database

    async def cut(self) -> None:
        self.history.deed("connections cut", str(self.proxy.cut()))

    async def lose_replies(self) -> None:
        share = self.chance.choice([0.05, 0.3])
        self.history.deed("replies lost for a while", f"{share:.0%}")
        rule = self.proxy.lose_some(share, random.Random(self.chance.random()))
        await asyncio.sleep(self.chance.uniform(0.5, 2))
        self.proxy.rules.remove(rule)

    async def slow(self) -> None:
        self.history.deed("slow replies for a while")
        self.proxy.delay_s = self.chance.uniform(0.02, 0.15)
        await asyncio.sleep(self.chance.uniform(0.5, 2))
        self.proxy.delay_s = 0

    async def hold(self) -> None:
        seconds = self.chance.uniform(0.3, 1.5 * LEASE_S)
        self.history.deed("network holds everything", f"{seconds:.1f} s")
        self.proxy.hold()
        await asyncio.sleep(seconds)
        self.proxy.release()
