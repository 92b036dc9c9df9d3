"""The past: one late viewer, a hundred at once, and everybody who comes back in the same second."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.ends import Raw, Seen, Swarm
from tests.bench.measure import Meter, Table, big, ms, peak, ratio, rss
from tests.bench.rig import rig
from tests.bench.stream import exact

SIZE = 20  # characters of an event: small ones, many


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    events: int = 50_000
    logs: Sequence[int] = (10_000, 50_000)
    late: int = 100
    back: int = 2_000
    seconds: float = 1.0
    tries: int = 3


QUICK = Plan(tries=1)
TINY = Plan(events=1_500, logs=(1_500,), late=5, back=20, seconds=0.1, tries=1)


async def late(plan: Plan) -> dict[int, Seen]:
    """Viewers who come when most is over. Time from the request to the last event."""
    table = Table(
        f"A task of {plan.events:,} events, read from its start",
        ("viewers at once", "raw C ms", "Unbroken ms", "ratio", "frames each"),
        "Time from the first request to the last viewer's last event; the raw server sends every event unfolded.",
    )
    found: dict[int, Seen] = {}
    async with rig() as ours:
        pen = (await ours.publisher.start(1))[0]
        await ours.publisher.past(pen, plan.events, size=SIZE)
        for viewers in (1, plan.late):
            base = min([await _raw(plan.events, viewers) for _ in range(plan.tries)])
            times = []
            for _ in range(plan.tries):
                async with Swarm(ours.port, [pen.path]) as swarm:
                    swarm.say(f"until {pen.first + pen.count}")
                    swarm.start(viewers)
                    seen = await swarm.complete(viewers)
                    exact(seen)
                    assert not seen["delay"]["count"] or seen["frames"], seen
                    times.append(seen["done_us"])
            best = min(times)
            found[viewers] = seen
            table.add(str(viewers), ms(base), ms(best), ratio(best, base), big(seen["frames"] / viewers))
    table.show()
    return found


async def _raw(events: int, viewers: int) -> float:
    async with Raw() as raw, Swarm(raw.port, ["/"]) as swarm:
        raw.past(events, size=SIZE)
        await raw.look()
        swarm.say(f"until {events}")
        swarm.start(viewers)
        return float((await swarm.complete(viewers))["done_us"])


async def storm(plan: Plan) -> Seen:
    """A restart's aftermath: everybody comes back within a second, each with a cursor of its own."""
    table = Table(
        f"{plan.back:,} viewers come back within {plan.seconds:g} s, each at a random cursor",
        (
            "events of the task",
            "MB sent",
            "all caught up after s",
            "each: p50 ms",
            "p99 ms",
            "lost or doubled",
            "memory each KB",
            "peak each KB",
        ),
        "Memory of the server: afterwards, and at the highest while they came.",
    )
    for events in plan.logs:
        seen = await _storm(plan, events, table)
    table.show()
    return seen


async def _storm(plan: Plan, events: int, table: Table) -> Seen:
    chance = random.Random(7)
    async with rig() as ours:
        pen = (await ours.publisher.start(1))[0]
        await ours.publisher.past(pen, events, size=SIZE)
        rows = [pen.cursor(chance.randrange(1, events), SIZE) for _ in range(plan.back)]
        async with Swarm(ours.port, [pen.path]) as swarm:
            await swarm.open(5)
            await swarm.quiet()
        rows_of = [tuple(row.split(" ")) for row in rows]
        async with Swarm(ours.port, [(path, cursor, int(chars)) for path, cursor, chars in rows_of]) as swarm:
            swarm.say(f"until {pen.first + pen.count}")
            before, meter = rss(ours.server), Meter(ours.server)
            swarm.start(plan.back, seconds=plan.seconds, burst=plan.back)
            seen = await swarm.complete(plan.back)
            exact(seen)
            kb = [meter.grown / plan.back / 1024, (peak(ours.server) - before) / plan.back / 1024]
            wrong = seen["doubled"] + seen["holes"] + seen["rewinds"]
            p50, p99 = seen["complete"]["p50"], seen["complete"]["p99"]
            cells = big(events), big(seen["bytes"] / 1e6), f"{seen['done_us'] / 1e6:.2f}", ms(p50), ms(p99), str(wrong)
            table.add(*cells, f"{kb[0]:.1f}", f"{kb[1]:.1f}")
    return seen


async def run(plan: Plan) -> None:
    """All tables of this file."""
    await late(plan)
    await storm(plan)
