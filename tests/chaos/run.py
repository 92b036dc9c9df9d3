"""One run: people and weather at the same time, then calm, then the judge."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from redis.asyncio import Redis

from tests.chaos.checker import judge, judge_emptiness
from tests.chaos.history import History
from tests.chaos.people import Customer
from tests.chaos.weather import LEASE_S, Weather
from tests.support.desk import Desk
from tests.support.nursery import QuickStack
from tests.support.processes import Stack
from tests.support.redis_proxy import RedisProxy
from tests.support.valkey import Valkey
from unbroken.tasks.errors import NotFound
from unbroken.tasks.settings import Settings

TELL_S = 10.0  # between two lines of progress
SETTLE_S = 150.0  # after the weather: everything has to end by itself within this
SETTINGS: dict[str, object] = {
    "lease_s": LEASE_S,
    "concurrency": 5,
    "checkpoint_tokens": 24,
    "checkpoint_s": 0.3,
    "checkpoint_inline_max": 300,  # so that the object store is used too
    "backoff_base_s": 0.1,
    "backoff_cap_s": 1.0,
    "drain_s": 5,
    "reap_ms": 150,
    "retry_ms": 100,
    "heartbeat_s": 2,
    "log_level": "info",
}


@dataclass
class Report:
    """What came out. Empty `wrong`: nothing was violated."""

    history: History
    wrong: list[str]
    seconds: float
    kept: Path | None = None

    def lines(self) -> list[str]:
        """For people."""
        h = self.history
        viewers = [viewer for case in h.cases for viewer in case.viewers]
        cut = sum(v.connections + v.refused - 1 for v in viewers)
        kinds = [
            f"{n} {what}" for what, n in sorted(h.numbers.items()) if what.split()[0] in ("text", "batch", "chain")
        ]
        numbers = {k: v for k, v in h.numbers.items() if k.split()[0] not in ("text", "batch", "chain")}
        return [
            f"seed {h.seed}: {len(h.cases)} tasks in {self.seconds:.0f} s ({', '.join(kinds)})",
            "  " + ", ".join(f"{n:,} {what}" for what, n in sorted(numbers.items())),
            f"  {len(viewers)} viewers, {cut} broken or refused connections",
            "  " + ", ".join(f"{n} x {what}" for what, n in sorted(h.deeds.items())),
            f"  violations: {len(self.wrong)}",
            *(f"    {what}" for what in self.wrong[:50]),
        ]


async def chaos(
    seed: int,
    seconds: float,
    *,
    customers: int = 6,
    workers: int = 3,
    keep: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> Report:
    """Run it all. keep: where a run with violations leaves its diary, logs and record. say: hears every ten seconds
    how far it is."""
    history = History(seed)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ub-chaos-"))
    try:
        with Valkey(aof=True) as valkey:
            async with (
                RedisProxy(valkey.url) as proxy,
                QuickStack(
                    servers=2,
                    workers=workers,
                    valkey=valkey,
                    redis_url=proxy.redis_url,
                    scripted_record=folder,
                    **SETTINGS,
                ) as stack,
            ):
                teller = asyncio.create_task(_tell(history, proxy, say)) if say else None
                await _storm(history, stack, proxy, seconds, customers, workers)
                history.numbers["replies lost"] = proxy.lost
                if teller is not None:
                    teller.cancel()
                wrong = await _verdict(history, stack, folder)
                report = Report(history, wrong, time.monotonic() - began)
                if wrong and keep is not None:
                    report.kept = keep / f"chaos-{seed}-{int(time.time())}"
                    history.write(report.kept)
                    for log in (*stack.folder.glob("*.log"), *folder.glob("calls.jsonl"), valkey.log):
                        shutil.copy(log, report.kept)
                return report
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _tell(history: History, proxy: RedisProxy, say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(TELL_S)
        say(history.progress(proxy.lost))


async def _storm(
    history: History, stack: Stack, proxy: RedisProxy, seconds: float, customers: int, workers: int
) -> None:
    weather = Weather(stack, proxy, history, workers=workers)
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=20)
    async with httpx.AsyncClient(trust_env=False, limits=limits) as http:
        people = [Customer(n, history, stack.urls, http) for n in range(customers)]
        jobs = [asyncio.create_task(customer.run()) for customer in people]
        await weather.blow(time.monotonic() + seconds)
        for customer in people:
            customer.stopping = True
        await weather.calm()
        history.note("calm")
        keeper = asyncio.create_task(_keep_up(weather))
        _, late = await asyncio.wait(jobs, timeout=SETTLE_S)
        keeper.cancel()
        for job in late:
            job.cancel()
        for number, outcome in enumerate(await asyncio.gather(*jobs, return_exceptions=True)):
            if isinstance(outcome, BaseException):
                case = [c for c in history.cases if c.order.name.startswith(f"c{number}-")][-1]
                history.wrong.append(f"customer {number} is stuck with {case.task_id}: {outcome!r}")


async def _keep_up(weather: Weather) -> None:
    """Poison tasks kill workers in calm weather too."""
    while True:
        await weather.crew_up()
        await asyncio.sleep(0.2)


async def _verdict(history: History, stack: Stack, folder: Path) -> list[str]:
    client = Redis.from_url(stack.valkey.url)
    desk = Desk(client, Settings(redis_url=stack.valkey.url, lease_s=LEASE_S))
    try:
        for case in history.cases:
            if case.task_id:  # as it is now: it may have moved after its customer left; the judge finds what is gone
                with contextlib.suppress(NotFound):
                    case.final = (await desk.store.get(case.task_id, None)).view()
        wrong = await judge(history, desk, folder / "calls.jsonl")
        async with httpx.AsyncClient(trust_env=False) as http:
            for case in history.cases:
                if case.final.get("state") in ("completed", "failed", "cancelled"):
                    answer = await http.delete(f"{stack.url}/api/tasks/{case.task_id}", timeout=30)
                    if answer.status_code != 204:
                        wrong.append(f"{case.task_id}: deleting was answered with {answer.status_code}")
        return [*wrong, *await judge_emptiness(desk)]
    finally:
        await client.aclose()
