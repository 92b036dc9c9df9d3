"""The queue: how soon a task begins, how many go through, and whether a million old ones slow anything down."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from tests.bench.measure import Table, big, ratio
from tests.bench.rig import OWNER, Rig, rig
from tests.support.processes import free_port
from tests.support.valkey import Valkey
from tests.support.wait import until
from unbroken.cli.tether import command
from unbroken.tasks import keys
from unbroken.tasks.inputs import Script
from unbroken.tasks.submit import NewTask

OTHERS = {
    "arq": ("arq", "at least once; ran anew after a crash, no fence, no progress"),
    "saq": ("saq[hiredis]", "at least once; a sweep finds lost jobs, no fence, no progress"),
    "streaq": ("streaq", "at least once; idle jobs are taken over, no fence, no progress"),
}
MINE = "every write fenced, state and index and audit in one script, an event log for viewers"


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    starts: int = 100
    jobs: int = 4_000
    workers: int = 2
    concurrency: int = 16
    others: bool = True


QUICK = Plan(starts=30, jobs=1_500)
TINY = Plan(starts=2, jobs=30, workers=1, others=False)


async def first_event(plan: Plan) -> list[float]:
    """From sending the submit to the first text at the viewer, on an idle system; milliseconds."""
    took: list[float] = []
    body = {"prompt": "x", "scripted": {"seed": 1, "tokens": 3}}
    async with rig(workers=1) as ours:
        api = ours.stack.api
        await api.until_state((await api.submit(body))["task_id"], "completed")
        for _ in range(plan.starts):
            began = time.perf_counter()
            task = await api.submit(body)
            async with api.http.stream("GET", f"/api/tasks/{task['task_id']}/stream") as answer:
                async for line in answer.aiter_lines():
                    if line == "event: chunk":
                        took.append((time.perf_counter() - began) * 1000)
                        break
            await api.until_state(task["task_id"], "completed")
    table = Table("From submit to the first text at the viewer, idle worker", ("median ms", "p90 ms", "max ms"))
    table.add(f"{statistics.median(took):.1f}", f"{sorted(took)[int(len(took) * 0.9)]:.1f}", f"{max(took):.1f}")
    table.show()
    return took


async def _rate(count: Callable[[], Awaitable[int]], jobs: int) -> float:
    """Jobs a second between the tenth and the last tenth of them."""
    marks: list[tuple[float, int]] = []
    low, high = jobs // 10, jobs - jobs // 10

    async def enough() -> bool:
        done = await count()
        if done >= low:
            marks.append((time.monotonic(), done))
        return done >= high

    await until(enough, f"{jobs} jobs to be done", within=180, every=0.005)
    (began, first), (ended, last) = marks[0], marks[-1]
    return (last - first) / max(1e-9, ended - began)


async def ours_through(plan: Plan) -> float:
    """Claims and completions a second of tasks without any text."""
    body = {"prompt": "x", "scripted": Script(tokens=0).model_dump(exclude_none=True)}
    valkey = Valkey(aof=True, port=free_port())
    valkey.start()
    try:
        async with rig(valkey=valkey, concurrency=plan.concurrency) as ours:
            publisher = ours.publisher
            for at in range(0, plan.jobs, 50):
                new = NewTask(owner=OWNER, kind="text", input=body, unit="tokens")
                await asyncio.gather(
                    *(publisher.store.create(new, actor=OWNER) for _ in range(min(50, plan.jobs - at)))
                )
            for _ in range(plan.workers):
                await ours.stack.start_worker()
            return await _rate(lambda: publisher.redis.zcard(keys.key("done")), plan.jobs)
    finally:
        valkey.close()


async def other_through(library: str, plan: Plan) -> float:
    """The same for another library, in an environment made for it and thrown away."""
    package = OTHERS[library][0]
    script = Path(__file__).with_name("others.py")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    uv = [
        "uv",
        "run",
        "--isolated",
        "--no-project",
        "--python",
        version,
        "--with",
        package,
        "--with",
        "typing-extensions",
    ]
    run = [*uv, "python", str(script), library]
    folder = Path(tempfile.mkdtemp(prefix="ub-others-"))
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with Valkey(aof=True, port=free_port()) as valkey:
            url = f"redis://127.0.0.1:{valkey.port}"
            given = [*run, "submit", url, str(plan.jobs), "-"]
            await asyncio.to_thread(subprocess.run, given, check=True, env=env, cwd=folder)
            for number in range(plan.workers):
                given = [*run, "work", url, str(plan.concurrency), str(folder / f"{number}.done")]
                with (folder / f"{number}.log").open("wb") as log:
                    argv = command(os.getpid(), given)
                    processes.append(subprocess.Popen(argv, env=env, cwd=folder, stdout=log, stderr=log))

            async def done() -> int:
                return sum(path.stat().st_size for path in folder.glob("*.done"))

            try:
                return await _rate(done, plan.jobs)
            finally:
                for process in processes:
                    process.terminate()
                for process in processes:
                    await asyncio.to_thread(process.wait)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def through(plan: Plan) -> dict[str, float]:
    """The table of all."""
    table = Table(
        f"Empty jobs through {plan.workers} worker processes of {plan.concurrency} at once",
        ("queue", "jobs/s", "ratio", "what that includes"),
        "AOF on (every second) for all. Jobs are in the queue before the workers start.",
    )
    found = {"Unbroken": await ours_through(plan)}
    table.add("Unbroken", big(found["Unbroken"]), "1.00", MINE)
    for library in OTHERS if plan.others else ():
        try:
            found[library] = await other_through(library, plan)
        except (subprocess.CalledProcessError, TimeoutError) as error:
            table.add(library, "-", "-", f"could not be run: {type(error).__name__}")
            continue
        table.add(library, big(found[library]), ratio(found[library], found["Unbroken"]), OTHERS[library][1])
    table.show()
    return found


def _copies(redis: Redis, template: str, count: int) -> None:
    """Copies of a finished task as the scripts have written it: the same keys and entries of indexes, other ids."""
    dumps = {what: redis.dump(keys.key(what, template)) for what in ("task", "in", "ev", "text", "marks", "ckpt")}
    created = int(redis.hget(keys.key("task", template), "created_us") or 0)
    expires = int(time.time() * 1000) + 7 * 86_400_000
    for at in range(0, count, 500):
        pipe = redis.pipeline(transaction=False)
        for number in range(at, min(count, at + 500)):
            task_id, older = keys.new_task_id(), created - 1000 * (number + 1)
            for what, data in dumps.items():
                if data is not None:
                    pipe.restore(keys.key(what, task_id), 0, data)
            pipe.hset(keys.key("task", task_id), "created_us", str(older))
            for index in ("all", "completed"):
                pipe.zadd(keys.key("list", index, OWNER), {task_id: older})
            pipe.zadd(keys.key("done"), {task_id: expires + number})
        pipe.execute()


async def records(count: int, *, pages: int = 40) -> list[float]:
    """Pages of the list beside so many finished tasks. Returns the median times in ms, few first."""
    steps = sorted({max(1, count // 100), max(1, count // 10), count})
    table = Table(
        "GET /api/tasks beside many finished tasks",
        ("finished tasks", "first page ms", "deep pages ms", "completed only ms", "bytes of memory a task"),
        "Medians, 50 tasks a page; deep pages follow the cursor. Each task: 2 KB of text, 30 events, a checkpoint.",
    )
    found: list[float] = []
    with Valkey() as valkey:  # without AOF: gigabytes that nobody asks for
        async with rig(workers=1, valkey=valkey) as ours:
            await _pages(ours, steps, pages, table, found)
    table.show()
    return found


async def _pages(ours: Rig, steps: Sequence[int], pages: int, table: Table, found: list[float]) -> None:
    api = ours.stack.api
    body = {"prompt": "x", "scripted": {"seed": 1, "tokens": 200, "rate": 200}}
    first = await api.submit(body)
    task = await api.until_state(first["task_id"], "completed")
    sync: Redis = Redis.from_url(ours.stack.redis_url)
    empty, made = int(sync.info("memory")["used_memory"]), 1
    for step in steps:
        await asyncio.to_thread(_copies, sync, task["task_id"], step - made)
        made = step
        used = (int(sync.info("memory")["used_memory"]) - empty) / made
        times: dict[str, list[float]] = {"first": [], "deep": [], "completed": []}
        cursor = ""
        for _ in range(pages):
            for name, query in (("first", ""), ("deep", cursor), ("completed", "&state=completed")):
                began = time.perf_counter()
                answer = await api.http.get(f"/api/tasks?limit=50{query}")
                times[name].append((time.perf_counter() - began) * 1000)
                page = json.loads(answer.content)
                assert page["items"] or name == "deep", answer.text
                if name == "deep":
                    cursor = f"&cursor={page['next_cursor']}" if page["next_cursor"] else ""
        middle = {name: statistics.median(each) for name, each in times.items()}
        found.append(middle["deep"])
        table.add(big(step), *(f"{middle[name]:.1f}" for name in ("first", "deep", "completed")), big(used))
    assert sync.zcard(keys.key("list", "all", OWNER)) == steps[-1]
    sync.close()


async def run(plan: Plan, tasks: int) -> None:
    """All tables of this file."""
    await first_event(plan)
    await through(plan)
    await records(tasks)
