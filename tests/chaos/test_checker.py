"""The judge can find guilty: each rule is shown what it must not pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.checker import judge, judge_emptiness
from tests.chaos.history import Answer, Case, History
from tests.chaos.people import Customer
from tests.chaos.plan import Order, orders
from tests.faults.ground import direct
from tests.support.desk import Desk
from tests.support.nursery import QuickStack
from unbroken.tasks import keys

Crime = Callable[[Desk, Case, Path], Awaitable[None]]


def order_of(kind: str) -> Order:
    """An ordinary one: it completes, somebody watches."""
    for order in orders(1, 1):
        script = order.body["input"]["scripted"]
        usual = "fail" not in script and 10 < script["tokens"] < 1_000
        if order.kind == kind and usual and not any(verb == "cancel" for _, verb, _ in order.storms):
            order.storms, order.viewers, order.cuts = [], 1, 2
            return order
    raise AssertionError("the plan has no end")


@asynccontextmanager
async def after_a_quiet_run(calls: Path) -> AsyncIterator[tuple[History, Desk]]:
    """A text and a batch that went well."""
    async with QuickStack(scripted_record=calls, concurrency=4) as stack, direct(stack) as desk:
        history = History(1)
        async with httpx.AsyncClient(trust_env=False) as http:
            customer = Customer(0, history, stack.urls, http)
            await asyncio.gather(*(customer.serve(order_of(kind)) for kind in ("text", "batch")))
        yield history, desk


async def letter(desk: Desk, case: Case, calls: Path) -> None:
    """One byte of the stored text is another."""
    await desk.redis.setrange(keys.key("text", case.task_id), 3, "#")


async def hole(desk: Desk, case: Case, calls: Path) -> None:
    """An event is gone."""
    ids = await desk.redis.xrange(keys.key("ev", case.task_id))
    await desk.redis.xdel(keys.key("ev", case.task_id), ids[2][0])


async def second_end(desk: Desk, case: Case, calls: Path) -> None:
    """The end is told twice."""
    last, fields = (await desk.redis.xrevrange(keys.key("ev", case.task_id), count=1))[0]
    epoch, n = last.decode().split("-")
    await desk.redis.xadd(keys.key("ev", case.task_id), fields, id=f"{epoch}-{int(n) + 1}")


async def lost_index(desk: Desk, case: Case, calls: Path) -> None:
    """No index knows it."""
    await desk.redis.zrem(keys.key("done"), case.task_id)


async def viewer_skips(desk: Desk, case: Case, calls: Path) -> None:
    """A viewer missed something."""
    case.viewers[0].text = case.viewers[0].text[:5] + case.viewers[0].text[6:]


async def second_task(desk: Desk, case: Case, calls: Path) -> None:
    """The same key made another one."""
    case.task_ids.add((await desk.submit()).id)


async def cancelled(desk: Desk, case: Case, calls: Path) -> None:
    """It was cancelled and completed nevertheless."""
    case.cancelled_at = 1.0


async def recovered_twice(desk: Desk, case: Case, calls: Path) -> None:
    """Two recoveries were told, none was made."""
    for name in ("r-1", "r-2"):
        case.answers.append(Answer("recover", 202, {"recovery_id": name}, 0.0))


async def generated_again(desk: Desk, case: Case, calls: Path) -> None:
    """A later attempt asked the model from the start, although the log held text."""
    task_id, attempt = case.task_id, 2
    at = (await desk.redis.xrevrange(keys.key("ev", task_id), count=1))[0][0].decode().split("-")
    status = json.dumps({"state": "processing", "attempt": attempt})
    await desk.redis.xadd(
        keys.key("ev", task_id), {"e": "status", "d": status}, id=f"{int(at[0]) + 1}-{int(at[1]) + 1}"
    )
    _call(calls, {"task_id": task_id, "request_id": f"{task_id}-{attempt}", "attempt": attempt, "first": 0})


async def item_again(desk: Desk, case: Case, calls: Path) -> None:
    """An item that was set is run again by a later attempt."""
    _call(calls, {"task_id": case.task_id, "request_id": f"{case.task_id}-2-item-0", "attempt": 2, "first": 0})


def _call(calls: Path, line: dict[str, Any]) -> None:
    with (calls / "calls.jsonl").open("a") as out:
        out.write(json.dumps(line) + "\n")


ON_TEXT: dict[Crime, str] = {
    letter: "the log folds to",
    hole: "follows",
    second_end: "2 terminal events",
    lost_index: "missing in done",
    viewer_skips: "a viewer read another text",
    second_task: "one key made 2 tasks",
    cancelled: "cancelled with 2xx",
    recovered_twice: "recovery ids were told",
    generated_again: "made token 0 again",
}


async def test_the_judge_finds_each_crime(tmp_path: Path) -> None:
    async with after_a_quiet_run(tmp_path) as (history, desk):
        text, batch = (next(case for case in history.cases if case.order.kind == kind) for kind in ("text", "batch"))
        assert await judge(history, desk, tmp_path / "calls.jsonl") == []
        await item_again(desk, batch, tmp_path)
        assert _named(await judge(history, desk, tmp_path / "calls.jsonl"), "run again in attempt 2")
        for crime, words in ON_TEXT.items():
            before = await desk.dump(text.task_id)
            kept = (set(text.task_ids), text.cancelled_at, list(text.answers), text.viewers[0].text)
            await crime(desk, text, tmp_path)
            found = await judge(history, desk, tmp_path / "calls.jsonl")
            assert _named(found, words), f"{crime.__name__}: {found}"
            text.task_ids, text.cancelled_at, text.answers, text.viewers[0].text = kept
            await _put_back(desk, text.task_id, before)
        await desk.redis.set(keys.key("forgotten", "x"), "1")
        assert "left behind for ever: forgotten:x" in await judge_emptiness(desk)


def _named(found: list[str], words: str) -> bool:
    return any(words in line for line in found)


async def _put_back(desk: Desk, task_id: str, before: dict[str, Any]) -> None:
    for what in ("text", "ev"):
        await desk.redis.delete(keys.key(what, task_id))
        await desk.redis.restore(keys.key(what, task_id), 0, before[what])
    await desk.redis.zadd(keys.key("done"), {task_id: before["done"]})


def test_a_long_run_says_how_far_it_is() -> None:
    history = History(7)
    history.cases = [Case(order_of("text"), "key-1", final={"state": "completed"}), Case(order_of("batch"), "key-2")]
    for deed in ("kill -9 worker", "SIGTERM server", "SCRIPT FLUSH"):
        history.deed(deed)
    history.wrong.append("something")
    line = history.progress(lost=3)
    for part in ("seed 7", "2 tasks (1 ended)", "2 kills of 3 deeds", "3 lost replies", "1 violations"):
        assert part in line
