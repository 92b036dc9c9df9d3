"""Dead letters: grouped, told apart by what went wrong, and brought back exactly once each."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from tests.inbox.office import Office, Record
from tests.support.api import scripted, story
from tests.support.wait import until
from unbroken.tasks import keys

FAILING = scripted(tokens=40, fail="permanent", fail_at=30)


@pytest.mark.office(workers=2, concurrency=10)
async def test_a_group_of_fifty_replayed_ten_times_at_once_runs_fifty_times(office: Office, record: Record) -> None:
    ids = await office.submit_many(50, FAILING)
    steps = {"steps": [{"name": "One", "prompt": "x"}], "scripted": FAILING["scripted"]}
    other = await office.submit_many(2, steps, kind="chain")
    await until(lambda: _count(office, "failed", 52), "all to fail")
    groups = (await office.api.http.get("/api/dead-letters")).json()["groups"]
    assert sorted(group["count"] for group in groups) == [2, 50]
    [group] = [group["group"] for group in groups if group["count"] == 50]

    calls = [office.api.http.post("/api/dead-letters/replay", json={"group": group}) for _ in range(10)]
    answers = [answer.json() for answer in await asyncio.gather(*calls)]
    assert sum(answer["replayed"] for answer in answers) == 50
    assert Counter(task for answer in answers for task in answer["task_ids"]) == dict.fromkeys(ids, 1)

    for task_id in ids:
        task = await office.api.until_state(task_id, ("completed", "failed"))
        assert (task["state"], task["errors"], task["attempts"]) == ("completed", 0, 2), "a fresh budget"
        assert await office.api.text(task_id) == story(tokens=40)
        assert len(record.calls(task_id)) == 2, "one new run each"
        assert [move.op for move in await office.moves(task=task_id)].count("replay") == 1
        assert await office.redis.hget(keys.key("task", task_id), "generation") == b"2"
    starts = [json.loads(line)["first"] for line in (record.folder / "calls.jsonl").read_text().splitlines()]
    assert Counter(starts) == {0: 52, 30: 50}, "each went on from what it had"
    assert {(await office.api.task(task_id))["state"] for task_id in other} == {"failed"}


async def _count(office: Office, state: str, count: int) -> bool:
    return await office.count(state) == count


async def test_by_command_for_people_and_for_scripts(office: Office) -> None:
    ids = await office.submit_many(3, FAILING)
    await until(lambda: _count(office, "failed", 3), "all to fail")
    [group] = (await office.api.http.get("/api/dead-letters")).json()["groups"]
    assert (group["count"], set(group["examples"])) == (3, set(ids))
    row = (await office.cli("dead-letters"))[0].split("\t")
    assert row[:4] == [group["group"], "3", "text", "scripted"]
    out, _ = await office.cli("replay", "--json", *ids, "s0-00000000000000000000000000", "nonsense", ok=1)
    told = json.loads(out)
    assert (told["replayed"], len(told["refused"])) == (3, 2)
    for task_id in ids:
        await office.api.until_state(task_id, "completed")


async def test_more_than_one_round_trip_is_replayed_whole(office: Office) -> None:
    ids = await office.submit_many(450, scripted(tokens=1, fail="permanent", fail_at=0))
    await until(lambda: _count(office, "failed", 450), "all to fail", within=60)
    answer = (await office.api.http.post("/api/dead-letters/replay", json={"all": True})).json()
    assert (answer["replayed"], set(answer["task_ids"])) == (450, set(ids))
    assert answer["refused"] == {}
