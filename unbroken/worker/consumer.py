"""The worker: claims exactly as many tasks as it has free slots, and runs each in a Runner.

Wake-ups are hints: the channel says "wake", "cancel <id>" or "pause <id>", and a poll finds what a lost hint would
have told. A claim whose reply was lost is sent again under its own token, so that no lease is left without a holder."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Sequence
from typing import Any

from unbroken.tasks.connection import Gathered, connect
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.holder import Holder
from unbroken.tasks.kind import Kind
from unbroken.tasks.lease import Claimed, Last
from unbroken.tasks.objects import Objects
from unbroken.tasks.settings import Settings
from unbroken.worker.backends.base import Backend
from unbroken.worker.driver import Why
from unbroken.worker.heartbeat import Heart
from unbroken.worker.hints import Hints
from unbroken.worker.pacing import between
from unbroken.worker.pump import Outage, Pump
from unbroken.worker.runner import Runner, Tools

log = logging.getLogger("unbroken.worker.consumer")
CLAIMS = 16  # at once, while there is enough to do
LAST_WORDS_S = 1.0  # beyond the grace, for calls that are being answered right now


def worker_id() -> str:
    """Unique for each start of a process: a name that comes back must never look like its dead predecessor."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"


class Consumer:
    """One worker."""

    def __init__(self, settings: Settings, backend: Backend, kinds: dict[str, Kind], *, name: str = "") -> None:
        self.name = name or worker_id()
        self.settings = settings
        self.running: dict[str, Runner] = {}
        self.claims = 0
        self._jobs: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._wake = asyncio.Event()
        self._redis: Any = connect(settings.redis_url, name=self.name)
        calls = Gathered(self._redis, audit_max=settings.audit_max)
        holder = Holder(calls, settings, self.name)
        heart = Heart(settings, name=self.name, loop=asyncio.get_running_loop())
        self.tools = Tools(settings, calls, holder, Pump(holder), heart, backend, kinds, Objects(settings.objects))
        self._hints = Hints(settings.redis_url, self.name, self._hinted, self._wake.set)
        self._tokens = [holder.new_token() for _ in range(CLAIMS)]
        self._open: set[int] = set()
        """Places in `tokens` of claims that were sent and not answered."""

    def stop(self) -> None:
        """SIGTERM: claim nothing more, hand over what runs. Asked again: do not wait for the grace."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        self._wake.set()
        for runner in list(self.running.values()):
            runner.stop(Why.SHUTDOWN)

    async def run(self) -> None:
        """Work until `stop`, then drain. Returns when everything is handed over or the grace is over."""
        self.tools.heart.start()
        services = [
            asyncio.create_task(self.tools.pump.run(), name="pump"),
            asyncio.create_task(self._hints.run(), name="hints"),
        ]
        log.info("worker %s: up to %d tasks at once", self.name, self.settings.concurrency)
        try:
            await self._claim_loop()
            await self._drain()
        finally:
            for service in services:
                service.cancel()
            await asyncio.wait(services, timeout=1)
            self.tools.heart.stop()
            await self._hints.close()
            await self._redis.aclose()
        log.info("worker %s: stopped", self.name)

    # claiming

    async def _claim_loop(self) -> None:
        outage = Outage("claim")
        again, eager = 0, 1
        while not self._stopping.is_set():
            self._wake.clear()
            free = self.settings.concurrency - len(self.running)
            if free <= 0:
                await self._rest(None)
                continue
            try:
                waits = await self._claim(min(free, eager))
            except StoreUnavailable as error:  # it may have been done: the same token asks for its answer
                await asyncio.sleep(outage.failed(error))
                continue
            except Exception:
                log.exception("claim failed in an unknown way")
                await asyncio.sleep(between(0.5, 1.5))
                continue
            outage.over()
            # As long as every claim gets a task, more are sent at once; one by one otherwise, for others are there too.
            eager = 1 if waits else min(CLAIMS, 2 * eager)
            if not waits:
                again = 0
            elif 0 in waits:
                again += 1
                await asyncio.sleep(min(0.5, 0.002 * again))
            else:
                await self._rest(waits[0])

    async def _claim(self, count: int) -> list[float]:
        """Claim, and start what was got. Returns what the claims without a task said: in how many seconds to ask again.
        A stop waits for the answer only for a moment; then it stays open (see _return_open_claims)."""
        count = max(count, 1 + max(self._open, default=-1))
        self._open |= set(range(count))
        claim = asyncio.create_task(self.tools.holder.claim_many(self._tokens[:count]), name="claim")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({claim, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not claim.done():
                await asyncio.wait({claim}, timeout=LAST_WORDS_S)
            if not claim.done():
                raise StoreUnavailable("stopped in the middle of a claim")
            return self._claimed(claim.result())
        finally:
            stopping.cancel()
            claim.cancel()

    def _claimed(self, answers: Sequence[Claimed | float | Exception]) -> list[float]:
        waits: list[float] = []
        error: Exception | None = None
        for place, got in enumerate(answers):
            if isinstance(got, Exception):
                error = got
                continue
            self._open.discard(place)
            self._tokens[place] = self.tools.holder.new_token()
            if isinstance(got, Claimed):
                self._start(got)
            else:
                waits.append(got)
        if error is not None:
            raise error
        return waits

    async def _rest(self, due: float | None) -> None:
        """Until a hint, a free slot, the next poll, or the time (`due` seconds) at which a task becomes ready."""
        # A claim also reaps, and a reaper that looks less often than every half lease believes in an outage each time.
        wait = min(self.settings.poll_s, self.settings.lease_s / 4) * between(0.8, 1.2)
        if due is not None and 0 <= due < wait:
            wait = due + 0.001
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            return

    def _start(self, claimed: Claimed) -> None:
        self.claims += 1
        runner = Runner(claimed, self.tools)
        self.running[runner.task_id] = runner
        if self._stopping.is_set():
            runner.stop(Why.SHUTDOWN)
        job = asyncio.create_task(runner.run(), name=f"run {runner.task_id}")
        self._jobs.add(job)
        job.add_done_callback(lambda job: self._ended(runner, job))

    def _ended(self, runner: Runner, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if self.running.get(runner.task_id) is runner:
            del self.running[runner.task_id]
        self._wake.set()

    def _hinted(self, task_id: str) -> None:
        runner = self.running.get(task_id)
        if runner is not None:
            look = asyncio.create_task(runner.look(), name=f"look {task_id}")
            self._jobs.add(look)
            look.add_done_callback(self._jobs.discard)

    # stopping

    async def _drain(self) -> None:
        log.info("worker %s: stopping, %d tasks are handed over", self.name, len(self.running))
        await self._return_open_claims()
        hurry = asyncio.create_task(self._hurry.wait())
        deadline = asyncio.get_running_loop().time() + self.settings.drain_s
        while self._jobs and not hurry.done():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await asyncio.wait([*self._jobs, hurry], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if self._jobs:
            for runner in self.running.values():
                log.warning("%s: not handed over in time; its lease will end", runner.task_id)
                runner.give_up()
            await asyncio.wait(self._jobs, timeout=LAST_WORDS_S)

    async def _return_open_claims(self) -> None:
        """A claim without an answer may have been done: ask once more, and give the task back untouched."""
        if not self._open:
            return
        holder = self.tools.holder
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                for got in await holder.claim_many(self._tokens[: 1 + max(self._open)]):
                    if isinstance(got, Claimed):
                        last = Last(got.num("bytes"), b"", got.num("length"))
                        await holder.release(got.lease, last, to="recovering")
        except Exception as error:
            log.warning("an unanswered claim stays unanswered: %s", error)
