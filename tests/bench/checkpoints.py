"""What checkpoints cost: generation with and without them, and one large state on its way out and back."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measure import Meter, Table, big
from tests.bench.rig import rig
from tests.support.wait import until
from unbroken.tasks import keys

MIB = 1024 * 1024


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    tasks: int = 40
    rate: float = 100
    tokens: int = 600
    fast_tokens: int = 60_000
    pairs: int = 3
    mib: int = 64


QUICK = Plan(tokens=300, fast_tokens=30_000, pairs=2)
TINY = Plan(tasks=3, rate=200, tokens=100, fast_tokens=500, pairs=1, mib=2)


@dataclass(frozen=True)
class Run:
    """One run: tokens a second over all tasks; CPU of worker and Valkey in µs for each token; checkpoints saved."""

    per_s: float
    worker_us: float
    valkey_us: float
    saved: int


async def generate(*, checkpoints: bool, tasks: int, tokens: int, rate: float) -> Run:
    """Let one worker run so many tasks at once."""
    async with rig(workers=1, concurrency=tasks, checkpoints=checkpoints) as ours:
        api, redis = ours.stack.api, ours.publisher.redis
        warm = await api.submit({"prompt": "x", "scripted": {"seed": 1, "tokens": 10}})
        await api.until_state(warm["task_id"], "completed")
        worker, valkey = Meter(ours.stack.workers[0].pid), Meter(ours.valkey)
        began = time.monotonic()
        script = {"seed": 1, "tokens": tokens, "rate": rate}
        made = await asyncio.gather(*(api.submit({"prompt": "x", "scripted": script}) for _ in range(tasks)))

        async def all_done() -> bool:
            return int(await redis.zcard(keys.key("done"))) > tasks

        await until(all_done, "all tasks to be completed", within=300, every=0.01)
        took, count = time.monotonic() - began, tasks * tokens
        saved = 0
        for task in made:
            seq = await redis.hget(keys.key("ckpt", task["task_id"]), "a.seq")
            saved += int(seq or 0)
        return Run(count / took, worker.cpu / count * 1e6, valkey.cpu / count * 1e6, saved)


async def cost(plan: Plan) -> dict[str, list[Run]]:
    """On against off, in turn, so that the machine's moods meet both."""
    table = Table(
        "Generation with checkpoints (every 64 tokens or 2 s) and without",
        (
            "load",
            "tokens/s off",
            "tokens/s on",
            "cost",
            "worker µs/token off",
            "on",
            "Valkey µs/token off",
            "on",
            "saved",
        ),
        f"Medians of {plan.pairs} runs each, in turn. The end of a run is seen every 10 ms.",
    )
    found: dict[str, list[Run]] = {}
    loads = {
        f"{plan.tasks} tasks at {plan.rate:g} tokens/s": (plan.tasks, plan.tokens, plan.rate),
        "4 tasks as fast as possible": (4, plan.fast_tokens, 0.0),
    }
    for name, (tasks, tokens, rate) in loads.items():
        runs: dict[bool, list[Run]] = {False: [], True: []}
        for _ in range(plan.pairs):
            for on in (False, True):
                runs[on].append(await generate(checkpoints=on, tasks=tasks, tokens=tokens, rate=rate))
        off, on_ = (_middle(runs[on]) for on in (False, True))
        lost = (off.per_s - on_.per_s) / off.per_s
        cells = (off.worker_us, on_.worker_us, off.valkey_us, on_.valkey_us)
        table.add(name, big(off.per_s), big(on_.per_s), f"{lost:+.1%}", *(f"{x:.1f}" for x in cells), big(on_.saved))
        found[name] = [off, on_]
    table.show()
    return found


def _middle(runs: list[Run]) -> Run:
    def mid(name: str) -> float:
        return float(statistics.median(getattr(run, name) for run in runs))

    return Run(mid("per_s"), mid("worker_us"), mid("valkey_us"), int(mid("saved")))


async def large(plan: Plan) -> dict[str, float]:
    """One large state out to the object store and back, in a process of its own, for its peak memory."""
    table = Table(
        f"A state of {plan.mib} MiB through the object store (a local folder)",
        ("content", "stored MiB", "save s", "load s", "process before MiB", "peak MiB saving", "peak MiB with loading"),
        "Before: the state is in memory already. Loading holds the old state and the new one.",
    )
    found: dict[str, float] = {}
    for content in ("text", "random"):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.large", str(plan.mib * MIB), content,
            stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2], env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        )  # fmt: skip
        out, _ = await child.communicate()
        assert child.returncode == 0, f"the measuring process ended with {child.returncode}"
        found = json.loads(out)
        assert found["same"], "what came back is not what went out"
        mib = [found[name] / MIB for name in ("before", "peak_save", "peak_load")]
        times = f"{found['save']:.2f}", f"{found['load']:.2f}"
        table.add(content, f"{found['stored'] / MIB:.1f}", *times, *(f"{value:.0f}" for value in mib))
    table.show()
    return found


async def run(plan: Plan) -> None:
    """All tables of this file."""
    await cost(plan)
    await large(plan)
