"""Batches: each item its own call and its own result, set once, whatever dies."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.inbox.office import Office, Record
from tests.support.processes import Process
from tests.support.upstream import Plan, Upstream
from tests.support.viewer import Viewer
from tests.support.wait import until
from unbroken.tasks import keys
from unbroken.tasks.inputs import Message
from unbroken.worker.backends.scripted import script_text

ITEMS = [f"mail number {n}" for n in range(200)]
KILLS = 5


def batch(items: list[str], **script: Any) -> dict[str, Any]:
    return {"instruction": "Summarise:", "items": items, "scripted": {"seed": 3, **script}}


def expected(item: str, tokens: int) -> str:
    return script_text(3, tokens, [Message(role="user", content=f"Summarise:\n\n{item}")])


@pytest.mark.office(workers=2, lease_s=1, batch_parallel=16, checkpoint_s=0.1)
async def test_two_hundred_mails_and_a_worker_killed_five_times(office: Office, record: Record) -> None:
    task_id = (await office.api.submit(batch(ITEMS, tokens=15, rate=40), kind="batch", max_crashes=10))["task_id"]
    for kill in range(1, KILLS + 1):
        await until(partial(_set, office, task_id, 30 * kill), f"{30 * kill} results")
        await _kill_the_one_who_runs_it(office, task_id)
    viewer = await Viewer(office.stack.url, task_id).follow()
    task = await office.api.until_state(task_id, "completed")
    assert (task["done"], task["total"], task["warning"]) == (200, 200, None)

    answer = await office.api.http.get(f"/api/tasks/{task_id}/result")
    assert viewer.end is not None
    assert hashlib.sha256(answer.content).hexdigest() == viewer.end.data["sha256"]
    results = answer.json()["items"]
    assert [item["result"] for item in results] == [expected(item, 15) for item in ITEMS]
    assert {n: item["result"] for n, item in viewer.items.items()} == dict(enumerate(r["result"] for r in results))
    await _nothing_that_was_set_is_asked_again(office, record, task_id)


async def _set(office: Office, task_id: str, share: int) -> bool:
    return bool(await office.redis.hlen(keys.key("items", task_id)) >= share)


async def _kill_the_one_who_runs_it(office: Office, task_id: str) -> None:
    name = str(await until(lambda: office.redis.hget(keys.key("task", task_id), "worker"), "a worker"), "ascii")
    victim: Process = next(w for w in office.stack.workers if f"-{w.pid}-" in name)
    victim.kill()
    office.stack.workers.remove(victim)
    await office.stack.start_worker()


async def _nothing_that_was_set_is_asked_again(office: Office, record: Record, task_id: str) -> None:
    """G13, from the log: the attempt in which an item was set is the last one that called the model for it."""
    attempt, set_in = 0, {}
    for _, name, data in await office.store.events(task_id, "0-0", count=10_000):
        said = json.loads(data)
        if name == "status":
            attempt = said["attempt"]
        elif name == "item":
            assert said["index"] not in set_in, "set once"
            set_in[said["index"]] = attempt
    assert sorted(set_in) == list(range(200))
    assert attempt >= KILLS + 1, "it was really interrupted"
    calls = Counter((call.part, call.attempt) for call in record.calls(task_id))
    assert {part for part, _ in calls} == {f"item-{n}" for n in range(200)}
    for (part, at), times in calls.items():
        assert times == 1, f"{part} was asked {times} times in attempt {at}"
        assert at <= set_in[int(part[5:])], f"{part} was asked again after it was set"


@pytest.mark.office(workers=0)
async def test_a_bad_item_fails_alone_and_everybody_says_so(office: Office, upstream: Upstream) -> None:
    """Of four items one is refused for good; another fails three times, and once more when the others are through."""
    busy = [Plan(status=503, headers={"retry-after-ms": "1"}, error={"error": {"message": "busy"}})] * 3
    upstream.answer(
        Plan(text="first"),
        Plan(status=400, error={"error": {"message": "secret words of the server"}}),
        *busy,
        Plan(text="fourth"),
        *busy,
    )
    model = {"backend": "openai", "backend_url": upstream.url, "model": "m"}
    await office.stack.start_worker(**model, batch_parallel=1, backoff_base_s=0.05)
    out, err = await office.cli("submit", "Say:", "--kind", "batch", "--file", "-", "--watch", stdin=b"a\nb\nc\nd\n")
    assert "2 of 4 items failed" in err
    items = json.loads(out)["items"]
    assert [item["ok"] for item in items] == [True, False, False, True]
    assert [item.get("result") for item in items] == ["first", None, None, "fourth"]
    assert [item["error"]["code"] for item in items if not item["ok"]] == ["bad_request", "upstream_error"]
    assert "secret words" not in out

    [task] = (await office.api.http.get("/api/tasks")).json()["items"]
    assert (task["state"], task["done"], task["warning"]) == ("completed", 4, "2 of 4 items failed.")
    assert len(upstream.seen) == 1 + 1 + 3 + 1 + 3, "a bad request is not repeated; nobody but this item was refused"
