"""Errors: what is tried again and when, what is not, and who is told what about it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from uuid import uuid4

import pytest

from tests.inbox.office import Office, Record
from tests.support.api import scripted, story
from tests.support.upstream import Plan, Upstream
from tests.support.wait import until
from unbroken.cli.insight import operators_view


@pytest.mark.office(backoff_base_s=0.05)
async def test_three_passing_errors_then_success(office: Office, record: Record) -> None:
    data = scripted(tokens=60, fail="transient", fail_at=30, fail_times=3)
    task = await office.api.submit(data, max_attempts=4)
    ended = await office.api.until_state(task["task_id"], ("completed", "failed"))
    assert (ended["state"], ended["errors"], ended["attempts"], ended["error"]) == ("completed", 3, 4, None)
    assert await office.api.text(task["task_id"]) == story(tokens=60)
    assert len(record.calls(task["task_id"])) == 4


@pytest.mark.office(backoff_base_s=0.05)
async def test_one_try_less_ends_in_the_dead_letters(office: Office, record: Record) -> None:
    data = scripted(tokens=60, fail="transient", fail_at=30, fail_times=3)
    task = await office.api.submit(data, max_attempts=3)
    ended = await office.api.until_state(task["task_id"], ("completed", "failed"))
    assert (ended["state"], ended["errors"]) == ("failed", 3)
    assert len(record.calls(task["task_id"])) == 3


async def test_a_lasting_error_fails_at_once(office: Office, record: Record) -> None:
    task = await office.api.submit(scripted(tokens=60, fail="permanent", fail_at=30, fail_times=9), max_attempts=50)
    ended = await office.api.until_state(task["task_id"], ("completed", "failed"))
    assert (ended["state"], ended["errors"], ended["retry_at"]) == ("failed", 1, None)
    assert ended["error"]["retryable"] is False
    assert len(record.calls(task["task_id"])) == 1


@pytest.mark.office(workers=0)
async def test_retry_after_two_seconds_waits_two_seconds(office: Office, upstream: Upstream) -> None:
    upstream.answer(
        Plan(status=429, headers={"Retry-After": "2"}, error={"error": {"message": "slow"}}), Plan(text="Hi")
    )
    await office.stack.start_worker(backend="openai", backend_url=upstream.url, model="m", backoff_base_s=0.01)
    task_id = (await office.api.submit({"prompt": "x"}))["task_id"]
    waiting = await office.api.until_state(task_id, "recovering")
    assert waiting["error"]["code"] == "rate_limited"
    assert _ms(waiting["retry_at"]) - _ms(waiting["updated_at"]) >= 2_000, "it is said when it will be tried"
    await office.api.until_state(task_id, "completed")
    [failed] = await office.moves(task=task_id, op="fail")
    claims = await office.moves(task=task_id, op="claim")
    assert [claim.at - failed.at >= 2_000 for claim in claims] == [False, True]
    assert len(upstream.seen) == 2, "nobody in between tried again on its own"


@pytest.mark.office(workers=2, concurrency=40, backoff_base_s=4)
async def test_three_hundred_that_fail_together_come_back_spread_out(office: Office) -> None:
    ids = await office.submit_many(300, scripted(tokens=1, fail="transient", fail_at=0))
    await until(lambda: _all_completed(office, 300), "all to come back", within=60)
    trail = await office.moves()
    failed = {move.task: move.at for move in trail if move.op == "fail"}
    again = {move.task: move for move in trail if move.op == "claim"}  # the later one of two
    assert set(failed) == set(ids)
    waits = [again[task].at - at for task, at in failed.items()]
    assert min(waits) >= 0
    waited = Counter(wait // 500 for wait in waits if wait < 4_000)
    assert len(waited) == 8, "every half second of the first four some came back"
    assert max(waited.values()) <= 100, f"and never a third of them together: {waited}"


async def _all_completed(office: Office, count: int) -> bool:
    return await office.count("completed") == count


@pytest.mark.office(workers=0)
async def test_few_groups_and_a_plain_sentence_for_the_owner(office: Office, upstream: Upstream) -> None:
    """A hundred refusals, each with other words, are one group; the words are for operators only."""
    upstream.answer(
        *[Plan(status=400, error={"error": {"message": f"req {uuid4()}: bad host 10.1.2.{n}"}}) for n in range(100)]
    )
    await office.stack.start_worker(backend="openai", backend_url=upstream.url, model="m", concurrency=20)
    ids = await office.submit_many(100, {"prompt": "x"})
    await until(lambda: _count(office, "failed", 100), "all to fail", within=60)
    groups = (await office.api.http.get("/api/dead-letters")).json()["groups"]
    [group] = groups
    assert (group["count"], group["kind"], group["error"]["code"]) == (100, "text", "bad_request")

    seen = await office.api.task(ids[0])
    assert seen["error"]["message"] == "The model's server refused the request."
    assert "bad host" not in json.dumps([seen, groups])
    detail, _ = await office.cli("show", ids[0], "--detail")
    assert "bad host 10.1.2." in detail
    assert "Traceback (most recent call last)" in detail
    assert "error.message\tThe model's server refused the request." in detail
    assert f"group\t{group['group']}" in detail


async def _count(office: Office, state: str, count: int) -> bool:
    return await office.count(state) == count


@pytest.mark.office(backoff_base_s=0.05)
async def test_what_went_wrong_before_a_success_is_not_lost(office: Office) -> None:
    task = await office.api.submit(scripted(tokens=10, fail="transient", fail_at=5))
    await office.api.until_state(task["task_id"], "completed")
    told = operators_view(await office.store.get(task["task_id"], None))
    assert told["error"] is None
    assert json.loads(told["last_error"])["code"] == "scripted"
    assert "in _fault" in told["detail"]


async def test_the_last_hour_in_numbers(office: Office) -> None:
    good = await office.submit_many(6, scripted(tokens=1))
    bad = await office.submit_many(2, scripted(tokens=1, fail="permanent", fail_at=0))
    for task_id in good + bad:
        await office.api.until_state(task_id, ("completed", "failed"))
    stats = (await office.api.http.get("/api/stats")).json()
    assert stats["last_hour"] == {"successes": 6, "failures": 2, "failure_ratio": 0.25}
    metrics = (await office.api.http.get("/metrics")).text
    assert "unbroken_failure_ratio_last_hour 0.25" in metrics


def _ms(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp() * 1_000
