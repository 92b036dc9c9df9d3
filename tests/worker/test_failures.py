"""Errors: budgets, delays, what the owner sees, and how dead letters are grouped."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.support.desk import OWNER
from tests.worker.crew import Crew, expected
from unbroken.tasks.errors import Permanent, Transient
from unbroken.tasks.kind import Checkpoint, Kind, Run, Text, Update
from unbroken.worker.failures import understood
from unbroken.worker.pacing import CheckpointPace, fingerprint, full_jitter, retry_delay


async def test_a_transient_error_is_tried_again_from_where_it_was(crew: Crew) -> None:
    task_id = await crew.text(300, fail="transient", fail_at=150, fail_times=2)
    async with crew.working():
        task = await crew.reach(task_id, "completed")
    await crew.check_text(task_id, expected(300))
    assert (task.num("errors"), task.num("attempts")) == (2, 3)


async def test_the_error_budget_ends_in_the_dead_letters_and_replay_continues(crew: Crew) -> None:
    task_id = await crew.text(300, fail="transient", fail_at=150, fail_times=2, max_attempts=2)
    async with crew.working():
        task = await crew.reach(task_id, "failed")
        assert task.error == {
            "code": "scripted",
            "message": "As asked, the script fails before token 150.",
            "retryable": True,
        }
        [group] = await crew.store.dead_groups(OWNER)
        assert group["count"] == 1
        assert await crew.folded(task_id) == expected(150), "what was generated is kept"
        await crew.store.replay(task_id, OWNER, actor="me")
        await crew.reach(task_id, "completed", "failed")
    assert (await crew.folded(task_id)).startswith(expected(150))


async def test_a_permanent_error_runs_once(crew: Crew) -> None:
    task_id = await crew.text(300, fail="permanent", fail_at=3)
    async with crew.working():
        task = await crew.reach(task_id, "failed")
    assert task.num("attempts") == 1
    assert (await crew.log(task_id))[-1] == (
        "failed",
        {
            "state": "failed",
            "error": {"code": "scripted", "message": task.error and task.error["message"], "retryable": False},
        },
    )


class Odd(Kind):
    """Raises what nobody expected, after a point that was offered and not saved."""

    name = "odd"
    runs: list[object]

    class Input(BaseModel):
        """Nothing."""

    def __init__(self) -> None:
        self.runs = []

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """Two steps; the second fails the first time."""
        self.runs.append(run.state)
        if run.state is None:
            yield Text("one ")
            yield Checkpoint({"n": 1})
            raise ZeroDivisionError("secret-token-123")
        yield Text("two")


async def test_an_unknown_error_is_transient_and_the_failure_carries_the_newest_point(crew: Crew) -> None:
    odd = Odd()
    crew.kinds = {"odd": odd}
    task_id = await crew.submit("odd", {})
    async with crew.working(checkpoint_s=1_000):
        task = await crew.reach(task_id, "completed")
    assert odd.runs == [None, {"n": 1}], "it went on from the point before the error"
    await crew.check_text(task_id, "one two")
    assert task.num("errors") == 1


async def test_the_owner_never_sees_the_text_of_an_unknown_error(crew: Crew) -> None:
    crew.kinds = {"odd": Odd()}
    task_id = await crew.submit("odd", {}, max_attempts=1)
    async with crew.working():
        task = await crew.reach(task_id, "failed")
    assert "secret" not in json.dumps(task.view())
    assert "secret" in task.text("detail")


async def test_an_unknown_kind_and_a_bad_input_fail_for_good(crew: Crew) -> None:
    crew.kinds["ghost"] = Odd()
    ghost = await crew.submit("ghost", {})
    del crew.kinds["ghost"]
    bad = await crew.submit("text", {"prompt": "x", "nonsense": 1}, total=1)
    async with crew.working():
        assert ((await crew.reach(ghost, "failed")).error or {})["code"] == "unknown_kind"
        assert ((await crew.reach(bad, "failed")).error or {})["code"] == "invalid_input"


class Wrong(Kind):
    """Not a generator, or one that yields nonsense."""

    name = "wrong"

    class Input(BaseModel):
        """Nothing."""

    def run(self, run: Run) -> Iterator[Update]:
        """Nonsense."""
        yield "text"  # type: ignore[misc]


async def test_a_kind_that_yields_nonsense_fails_with_a_reason(crew: Crew) -> None:
    crew.kinds = {"wrong": Wrong()}
    task_id = await crew.submit("wrong", {}, max_attempts=1)
    async with crew.working():
        task = await crew.reach(task_id, "failed")
    assert "is not an update" in task.text("detail")


# pure


def test_a_thousand_messages_that_differ_by_ids_are_one_group() -> None:
    groups = {
        fingerprint(
            "text",
            "upstream",
            f"Request {uuid.uuid4()} to http://10.0.{i % 250}.{i % 7}:80{i % 99:02}/v1?x={i} failed after {i}.{i} s "
            f"(task s0-01m8ng6jfvrbrra4zmf3{i:06d}, pid {i}, at 0x{i:08x}, req_{uuid.uuid4().hex}, [::1]:{i})",
        )
        for i in range(1_000)
    }
    assert len(groups) == 1


def test_different_errors_are_different_groups() -> None:
    a = fingerprint("text", "c", "the model is overloaded")
    assert len({a, fingerprint("text", "c", "the model is gone"), fingerprint("batch", "c", "the model is overloaded"),
                fingerprint("text", "d", "the model is overloaded")}) == 4  # fmt: skip


@given(st.integers(0, 10_000), st.floats(0, 0.999999), st.none() | st.floats(0, 1e9))
def test_delays_stay_in_their_window(errors: int, roll: float, retry_after: float | None) -> None:
    delay = retry_delay(errors, base=1, cap=300, retry_after=retry_after, roll=roll)
    assert 0 <= delay <= max(300, min(retry_after or 0, 86_400) + 1)
    if retry_after is not None:
        assert delay >= min(retry_after, 86_400)
    assert full_jitter(errors, base=1, cap=300, roll=roll) <= min(300, 2.0 ** min(errors, 60))


def test_failures_that_happen_together_do_not_come_back_together() -> None:
    waits = [retry_delay(1, base=1, cap=300, retry_after=5, roll=i / 1_000) for i in range(1_000)]
    assert max(waits) - min(waits) > 0.9
    assert min(waits) >= 5


def test_the_pace_of_checkpoints() -> None:
    pace = CheckpointPace(tokens=64, seconds=2, since=100)
    pace.count(63)
    assert not pace.due(100.1)
    pace.count(1)
    assert pace.due(100.1)
    pace.tried(100.2, took=0.05)
    pace.count(1_000)
    assert not pace.due(103.1), "a slow save spaces the next ones out"
    assert pace.due(103.3)
    pace.tried(110, took=30)
    pace.count(1_000)
    assert not pace.due(169.9)
    assert pace.due(170.1), "but never by more than a minute"


@pytest.mark.parametrize(
    "error", [Permanent("x", "m" * 9_000, detail="d" * 90_000), ValueError("\ud800 odd"), Transient("y", "")]
)
def test_every_error_can_be_stored(error: Exception) -> None:
    failure = understood(error, "text")
    assert set(json.loads(failure.error)) == {"code", "message", "retryable"}
    assert len(failure.error) < 4_000
    failure.detail.encode()
    assert len(failure.detail) <= 4_000
