"""From an append to a viewer: how many, how late, at what cost, beside the raw limit of the same machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tests.bench.ends import Raw, Seen, Swarm
from tests.bench.measure import Meter, Table, big, ms, ratio
from tests.bench.rig import Pen, rig

SIZE = 110  # characters of an event: a frame of about 200 bytes
TICK_MS = 20  # what a writer groups
LATE_US = 1_000_000


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    seconds: float = 4
    crowd: int = 1_000
    large_crowd: int = 5_000
    tasks: int = 1_000
    ladder: Sequence[int] = (250, 500, 1_000, 1_400, 1_800, 2_200, 2_600, 3_000, 3_500, 4_000, 5_000, 6_000)
    large_ladder: Sequence[int] = (50, 100, 200, 300, 400, 500, 600, 700, 800, 1_000, 1_200)


QUICK = Plan(2, 1_000, 2_000, 500, (500, 1_000, 2_000, 3_000), (100, 200, 400, 800))
TINY = Plan(0.3, 20, 40, 10, (100,), (50,))


def exact(seen: Seen) -> None:
    """No measurement counts that lost or doubled something."""
    wrong = {name: seen[name] for name in ("doubled", "holes", "rewinds", "refused", "cut") if seen[name]}
    assert not wrong, f"{wrong} in {seen}"


Send = Callable[[float, float, int], Awaitable[float]]
"""Send (rate, seconds, tick in ms) to everybody; returns the rate that was reached."""


@dataclass(frozen=True)
class Crowd:
    """What one server did for many viewers of one task."""

    most: float
    """Deliveries a second, with p99 below a second."""
    late_us: float
    """p99 there."""
    steady: Seen | None
    cpu_us: float
    """CPU of the server for each delivery at the steady rate."""


async def _crowd(swarm: Swarm, pid: int, send: Send, ladder: Sequence[int], seconds: float, steady: float) -> Crowd:
    """Measure at the steady rate (0: not), then climb the ladder to the last rate that is on time."""
    seen, cpu_us = None, 0.0
    if steady:
        meter = Meter(pid)
        await swarm.mark()
        await send(steady, seconds, 1)
        await swarm.quiet()
        seen = await swarm.mark()
        exact(seen)
        cpu_us = meter.cpu / max(1, seen["frames"]) * 1e6
    most = late_us = 0.0
    for rate in ladder:
        await swarm.mark()
        reached = await send(rate, seconds, TICK_MS)
        in_time = (await swarm.look())["frames"]
        await swarm.quiet()
        now = await swarm.mark()
        exact(now)
        promised = rate * seconds * swarm.wanted
        if now["delay"]["p99"] >= LATE_US or in_time < 0.8 * promised or reached < 0.9 * rate:
            break
        most, late_us = now["frames"] / seconds, now["delay"]["p99"]
    return Crowd(most, late_us, seen, cpu_us)


def _raw_send(raw: Raw) -> Send:
    async def send(rate: float, seconds: float, tick_ms: int) -> float:
        raw.to_all(rate, tick_ms=tick_ms, size=SIZE)
        await asyncio.sleep(seconds)
        raw.idle()
        return rate

    return send


async def crowd(plan: Plan, viewers: int, ladder: Sequence[int], *, steady: float = 0) -> tuple[Crowd, Crowd]:
    """One task, many viewers. Returns what the raw server and ours did."""
    async with Raw() as raw, Swarm(raw.port, ["/"]) as swarm:
        await swarm.open(viewers)
        base = await _crowd(swarm, raw.pid, _raw_send(raw), ladder, plan.seconds, steady)
    async with rig() as ours:
        pen = (await ours.publisher.start(1))[0]

        async def publish(rate: float, seconds: float, tick_ms: int) -> float:
            return await ours.publisher.broadcast(pen, rate=rate, seconds=seconds, tick_ms=tick_ms, size=SIZE)

        async with Swarm(ours.port, [pen.path]) as swarm:
            await swarm.open(viewers)
            mine = await _crowd(swarm, ours.server, publish, ladder, plan.seconds, steady)
    table = Table(
        f"1 task, {viewers:,} viewers",
        ("work", "raw C", "Unbroken", "ratio"),
        f"Most deliveries a second with p99 below 1 s; events of one {TICK_MS} ms tick share a write in both.",
    )
    table.add("most deliveries/s", big(base.most), big(mine.most), ratio(mine.most, base.most))
    table.add("p99 there, ms", ms(base.late_us), ms(mine.late_us), ratio(mine.late_us, base.late_us))
    if base.steady and mine.steady:
        for name in ("p50", "p99"):
            a, b = base.steady["delay"][name], mine.steady["delay"][name]
            table.add(f"{steady:g} events/s: {name}, ms", ms(a), ms(b), ratio(b, a))
        costs = f"{base.cpu_us:.1f}", f"{mine.cpu_us:.1f}", ratio(mine.cpu_us, base.cpu_us)
        table.add(f"{steady:g} events/s: CPU µs per delivery", *costs)
    table.show()
    return base, mine


async def many_tasks(plan: Plan, *, rate: float = 20) -> Seen:
    """Each viewer has a task of its own."""
    table = Table(
        f"{plan.tasks:,} tasks, one viewer each, {rate:g} events/s each",
        ("server", "events/s", "p50 ms", "p99 ms", "CPU µs per event: server", "Valkey", "publisher"),
        "One append for each event: a worker would put the tokens of 30 ms into one. Where the sum of the CPU times"
        "\nexceeds what the machine has left, the publisher falls behind, and the delays are a queue's.",
    )
    async with Raw() as raw, Swarm(raw.port, ["/"]) as swarm:
        await swarm.open(plan.tasks)
        meter = Meter(raw.pid)
        raw.to_each(rate, size=SIZE)
        await asyncio.sleep(plan.seconds)
        raw.idle()
        base = await swarm.mark()
        each = meter.cpu / max(1, base["frames"]) * 1e6
        delays = ms(base["delay"]["p50"]), ms(base["delay"]["p99"])
        table.add("raw C", big(base["frames"] / plan.seconds), *delays, f"{each:.1f}", "-", "-")
    async with rig() as ours:
        pens = await ours.publisher.start(plan.tasks)
        async with Swarm(ours.port, [pen.path for pen in pens]) as swarm:
            await swarm.open(plan.tasks)
            await ours.publisher.each(pens, rate=rate, seconds=min(0.5, plan.seconds), size=SIZE)
            await swarm.quiet()
            await swarm.mark()
            meters = [Meter(pid) for pid in (ours.server, ours.valkey, os.getpid())]
            reached = await ours.publisher.each(pens, rate=rate, seconds=plan.seconds, size=SIZE)
            await swarm.quiet()
            seen = await swarm.mark()
            exact(seen)
            costs = [f"{meter.cpu / max(1, seen['frames']) * 1e6:.1f}" for meter in meters]
            table.add("Unbroken", big(reached), ms(seen["delay"]["p50"]), ms(seen["delay"]["p99"]), *costs)
    table.show()
    return seen


async def small_crowd(plan: Plan, *, viewers: int = 100, rate: float = 20) -> Seen:
    """The delay that a reader feels."""
    table = Table(f"1 task, {viewers} viewers, {rate:g} events/s", ("server", "p50 ms", "p99 ms", "max ms"))
    async with Raw() as raw, Swarm(raw.port, ["/"]) as swarm:
        await swarm.open(viewers)
        await _raw_send(raw)(rate, plan.seconds, 1)
        base = (await swarm.mark())["delay"]
        table.add("raw C", ms(base["p50"]), ms(base["p99"]), ms(base["max"]))
    async with rig() as ours:
        pen = (await ours.publisher.start(1))[0]
        async with Swarm(ours.port, [pen.path]) as swarm:
            await swarm.open(viewers)
            await ours.publisher.broadcast(pen, rate=rate, seconds=plan.seconds, tick_ms=1, size=SIZE)
            await swarm.quiet()
            seen = await swarm.mark()
            exact(seen)
            table.add("Unbroken", *(ms(seen["delay"][name]) for name in ("p50", "p99", "max")))
    table.show()
    return seen


async def idle(plan: Plan) -> tuple[float, float]:
    """What a connection costs that only waits: memory, and the time to make it. Returns KB and connects/s."""
    count = plan.large_crowd
    table = Table(f"{count:,} idle viewers of one task", ("server", "KB each", "connects/s", "first byte p99 ms"))
    async with Raw() as raw, Swarm(raw.port, ["/"]) as swarm:
        meter = Meter(raw.pid)
        seen = await swarm.open(count)
        rate = count / seen["heads_us"] * 1e6
        table.add("raw C", f"{meter.grown / count / 1024:.1f}", big(rate), ms(seen["head"]["p99"]))
    async with rig() as ours:
        pen = (await ours.publisher.start(1))[0]
        async with Swarm(ours.port, [pen.path]) as swarm:
            await swarm.open(20)  # what the first viewers alone cost is not theirs
            meter, redis = Meter(ours.server), Meter(ours.valkey)
            seen = await swarm.open(count)
            rate = count / seen["heads_us"] * 1e6
            await asyncio.sleep(min(0.5, plan.seconds))
            each = (meter.grown + redis.grown) / count / 1024
            table.add("Unbroken", f"{each:.1f}", big(rate), ms(seen["head"]["p99"]))
            before, pause = meter.cpu, min(5, plan.seconds * 2)
            await asyncio.sleep(pause)
            table.note = f"Idle afterwards: {(meter.cpu - before) / pause:.1%} of a core, heartbeats included."
    table.show()
    return each, rate


async def stalled(plan: Plan, *, readers: int = 480, rate: float = 50) -> Seen:
    """Viewers that never read beside viewers that do: whom do they hurt?"""
    table = Table(
        f"{readers} viewers at {rate:g} events/s, beside some that never read",
        ("silent", "p50 ms", "p99 ms", "server's memory grew by KB"),
    )
    async with rig() as ours:
        for silent in (0, 1, 20):
            pen = (await ours.publisher.start(1))[0]
            async with Swarm(ours.port, [pen.path]) as swarm:
                await swarm.open(readers + silent)
                swarm.say(f"stall {silent}")
                await _write(ours.publisher.broadcast, pen, rate, min(1.0, plan.seconds))
                await swarm.quiet()
                await swarm.mark()
                meter = Meter(ours.server)
                await _write(ours.publisher.broadcast, pen, rate, plan.seconds * 2)
                await swarm.quiet()
                seen = await swarm.mark()
                exact(seen)
                grown = big(meter.grown / 1024)
                table.add(str(silent), ms(seen["delay"]["p50"]), ms(seen["delay"]["p99"]), grown)
    table.note = "Events of 4,000 characters, so that a silent viewer's socket is full within a moment."
    table.show()
    return seen


async def _write(broadcast: Callable[..., Awaitable[float]], pen: Pen, rate: float, seconds: float) -> None:
    await broadcast(pen, rate=rate, seconds=seconds, tick_ms=5, size=4_000)


async def run(plan: Plan) -> None:
    """All tables of this file."""
    await small_crowd(plan)
    await many_tasks(plan)
    await crowd(plan, plan.crowd, plan.ladder, steady=16)
    await crowd(plan, plan.large_crowd, plan.large_ladder)
    await idle(plan)
    await stalled(plan)
