"""What is opted into: a finished result again, a callback at the end, an archive beyond retention."""

from __future__ import annotations

import pytest

from tests.support.desk import OWNER, Desk
from unbroken.tasks import keys
from unbroken.tasks.errors import Conflict
from unbroken.tasks.submit import NewTask

HOUR = 3_600_000


async def finish(desk: Desk, text: str = "") -> str:
    held = await desk.claim()
    if text:
        await desk.write(held.lease, text, at=0, batch=1)
    await desk.complete(held.lease, text)
    return held.lease.task_id


async def test_the_cache_gives_only_finished_own_and_fresh_results(timed: Desk) -> None:
    first = await timed.submit(cache_ms=HOUR, input={"prompt": "same"})
    second = await timed.submit(cache_ms=HOUR, input={"prompt": "same"})
    assert second.id != first.id, "nothing is finished yet"
    done = await finish(timed, "text")
    hit = await timed.submit(cache_ms=HOUR, input={"prompt": "same"})
    assert hit.id == done
    assert hit.view()["cached"] is True
    assert hit.view()["state"] == "completed"
    others = [
        await timed.submit(cache_ms=HOUR, input={"prompt": "other"}),
        await timed.submit("eve", cache_ms=HOUR, input={"prompt": "same"}),
        await timed.submit(input={"prompt": "same"}),
    ]
    assert done not in {task.id for task in others}
    await timed.tick(HOUR + 1)
    assert (await timed.submit(cache_ms=HOUR, input={"prompt": "same"})).id != done, "too old"


async def test_the_cache_never_points_to_what_was_deleted_or_failed(timed: Desk) -> None:
    await timed.submit(cache_ms=HOUR)
    done = await finish(timed)
    await timed.store.purge(done, OWNER, actor="a")
    again = await timed.submit(cache_ms=HOUR)
    assert again.id != done
    held = await timed.claim()
    await timed.fail(held.lease, retryable=False)
    assert (await timed.submit(cache_ms=HOUR)).id != again.id


async def test_a_cached_answer_repeats_under_its_idempotency_key(timed: Desk) -> None:
    await timed.submit(cache_ms=HOUR)
    done = await finish(timed)
    answers = [await timed.submit(cache_ms=HOUR, idempotency_key="k") for _ in range(2)]
    assert [(t.id, t.view()["state"]) for t in answers] == [(done, "completed")] * 2


async def _asked(desk: Desk, key: str = "k", cache_ms: int = HOUR, topic: str | None = None) -> tuple[str, bool]:
    """Submit with a key: which task it is, and whether that is said to be an earlier answer."""
    new = NewTask(
        owner=OWNER, kind="text", input={"prompt": "x"}, unit="tokens", cache_ms=cache_ms, topic=topic
    )  # fmt: skip
    task, replayed = await desk.store.create(new, actor="a", idempotency_key=key)
    return task.id, replayed


async def test_a_key_answered_from_the_cache_lives_as_long_as_any_key(timed: Desk) -> None:
    """Not as short as a result may be old: the repeat of a lost reply would run a second task."""
    first = await timed.submit(cache_ms=1_000)
    await finish(timed)
    assert await _asked(timed, cache_ms=1_000) == (first.id, False)
    await timed.tick(1_300)
    assert await _asked(timed, cache_ms=1_000) == (first.id, True)
    await expired(timed, 24 * HOUR - 10_000)
    await expired(timed, 24 * HOUR + 10_000, left=0)


async def expired(desk: Desk, within_ms: int, *, left: int = 1) -> None:
    """How many keys live for longer than that."""
    found = [await desk.redis.pttl(key) for key in await desk.redis.keys("ub:{s0}:idem:*")]
    assert sum(ttl > within_ms for ttl in found) == left


async def test_a_key_whose_task_was_deleted_is_a_new_one(timed: Desk) -> None:
    """G5: who is told 2xx finds the task. Nobody can be given again what its owner has removed."""
    await timed.submit(cache_ms=HOUR)
    done = await finish(timed)
    assert await _asked(timed) == (done, False)
    await timed.store.purge(done, OWNER, actor="a")
    again, replayed = await _asked(timed)
    assert (again != done, replayed) == (True, False)
    assert await _asked(timed) == (again, True), "and is that task's from now on"
    await finish(timed)
    assert await _asked(timed) == (again, True), "which does not come out of the cache"
    assert (await timed.store.get(again, OWNER)).text("cached") == ""


async def test_a_key_of_a_cancelled_and_deleted_task_can_be_used_again(timed: Desk) -> None:
    first, _ = await _asked(timed)
    await timed.store.cancel(first, OWNER, actor="a")
    assert await _asked(timed) == (first, True)
    with pytest.raises(Conflict):
        await _asked(timed, topic="another")
    await timed.store.purge(first, OWNER, actor="a")
    assert await timed.redis.keys("ub:{s0}:idem:*") == [], "every trace"
    second, replayed = await _asked(timed, topic="another")
    assert (second != first, replayed) == (True, False)
    assert (await timed.store.get(second, OWNER)).state.value == "pending"


async def test_a_delete_leaves_the_key_of_another_task_alone(timed: Desk) -> None:
    """Both were submitted with it, the second after the first one's key had run out."""
    first, _ = await _asked(timed)
    await finish(timed)
    await timed.redis.delete(*await timed.redis.keys("ub:{s0}:idem:*"), *await timed.redis.keys("ub:{s0}:cache:*"))
    second, _ = await _asked(timed)
    await timed.store.purge(first, OWNER, actor="a")
    assert await _asked(timed) == (second, True)


async def test_a_cached_answer_whose_reply_was_lost_is_no_repeat_of_the_clients(timed: Desk) -> None:
    """The same call sent again by ourselves: answered as the first time."""
    await timed.submit(cache_ms=HOUR)
    done = await finish(timed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "new_task_id", lambda: "s0-" + "0" * 26)
        assert [await _asked(timed) for _ in range(2)] == [(done, False)] * 2
    assert await _asked(timed) == (done, True)


async def test_a_callback_is_due_once_for_each_end_and_survives_its_taker(timed: Desk) -> None:
    task = await timed.submit(callback="https://example.org/hook")
    assert await timed.store.hooks(limit=10, hold_s=30) == []
    held = await timed.claim()
    await timed.fail(held.lease, retryable=False)
    ((member, url, tries, seen),) = await timed.store.hooks(limit=10, hold_s=30)
    assert (member, url, tries, seen.id) == (f"{task.id}:1", "https://example.org/hook", 1, task.id)
    assert await timed.store.hooks(limit=10, hold_s=30) == [], "somebody has it"
    await timed.set_time(1_767_225_600_000 + 31_000)  # and died over it
    ((_, _, tries, _),) = await timed.store.hooks(limit=10, hold_s=30)
    assert tries == 2
    await timed.store.hook_end(member, again_s=5, outcome="503")
    await timed.set_time(1_767_225_600_000 + 37_000)
    assert len(await timed.store.hooks(limit=10, hold_s=30)) == 1
    await timed.store.hook_end(member, again_s=None, outcome="delivered")
    assert await timed.redis.exists(keys.key("hooks")) == 0


async def test_a_result_is_archived_before_it_goes(redis: object, timed: Desk) -> None:
    timed.store.settings = timed.settings.model_copy(update={"archive": True})
    await timed.submit()
    done = await finish(timed, "kept")
    await timed.set_time(1_767_225_600_000 + 8 * 86_400_000)
    assert (await timed.store.sweep())[2] == [done]
    assert (await timed.store.sweep())[0] == 0, "not again at once"
    assert await timed.store.text(done) == b"kept"
    await timed.store.archived(done)
    assert (await timed.store.sweep())[0] == 1
    assert await timed.store.text(done) is None
    assert (await timed.store.get(done, OWNER)).num("shed") == 1


async def _due(desk: Desk, owner: str, how_many: int) -> None:
    """Callbacks of one owner that are due."""
    for _ in range(how_many):
        await desk.submit(owner, callback="https://example.org/hook")
        await desk.complete((await desk.claim()).lease, "")


async def test_an_owner_whose_receiver_is_slow_leaves_room_for_others(timed: Desk) -> None:
    await _due(timed, "slow", 5)
    await _due(timed, "other", 1)
    taken = await timed.store.hooks(limit=10, hold_s=30, per_owner=2)
    assert sorted(task.owner for *_, task in taken) == ["other", "slow", "slow"]
    assert await timed.store.hooks(limit=10, hold_s=30, per_owner=2, busy={"slow": 2}) == []
    (again,) = await timed.store.hooks(limit=10, hold_s=30, per_owner=2, busy={"slow": 1})
    assert again[2] == 1, "to be passed over is no try"
    assert len(await timed.store.hooks(limit=10, hold_s=30)) == 2


async def test_thousands_of_one_owner_do_not_hide_the_others(timed: Desk) -> None:
    await _due(timed, "slow", 1)
    ((member, _, _, task),) = await timed.store.hooks(limit=10, hold_s=30)
    crowd = {f"{task.id}:1": 1}
    for at in range(1_500):
        name = f"s0-{at:026d}"
        await timed.redis.copy(keys.key("task", task.id), keys.key("task", name))
        crowd[f"{name}:1"] = 2 + at
    await timed.redis.zadd(keys.key("hooks"), crowd)
    await _due(timed, "other", 1)
    seen = []
    for _ in range(2):
        seen += await timed.store.hooks(limit=10, hold_s=30, per_owner=2, busy={"slow": 2})
    assert [task.owner for *_, task in seen] == ["other"]
    left = await timed.redis.zcount(keys.key("hooks"), "-inf", 1_767_225_600_000)
    assert 100 <= left < 700, "some keep their place, the rest comes back soon"
    await timed.set_time(1_767_225_600_000 + 10_000)
    assert await timed.redis.zcount(keys.key("hooks"), "-inf", 1_767_225_600_000 + 10_000) == 1_501
    assert member in crowd
