"""G10: checkpoints that are torn, changed, of another schema or gone. The one before is used, visibly; a text goes on
from its log even without any; a kind whose state is all it has waits for a person. Nothing starts from zero."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.ground import direct, read_to_end, sound
from tests.support.api import Task, scripted, story
from tests.support.desk import Desk
from tests.support.nursery import QuickStack
from tests.support.processes import Stack
from tests.support.viewer import Viewer
from tests.support.wait import until
from unbroken.tasks import keys

KINDS = "tests.support.kinds_for_faults"
UPTO = 16


async def flipped(desk: Desk, key: str, which: str, objects: Path) -> None:
    """One byte of the state is another."""
    data = bytearray(await desk.redis.hget(key, f"{which}.data"))
    data[len(data) // 2] ^= 1
    await desk.redis.hset(key, f"{which}.data", bytes(data))


async def torn(desk: Desk, key: str, which: str, objects: Path) -> None:
    """Its second half is missing."""
    data = await desk.redis.hget(key, f"{which}.data")
    await desk.redis.hset(key, f"{which}.data", data[: len(data) // 2])


async def strange(desk: Desk, key: str, which: str, objects: Path) -> None:
    """It is of a version that this program does not know."""
    await desk.redis.hset(key, f"{which}.schema", 99)


async def incomplete(desk: Desk, key: str, which: str, objects: Path) -> None:
    """A part of its envelope is missing."""
    await desk.redis.hdel(key, f"{which}.sha256")


async def lost_object(desk: Desk, key: str, which: str, objects: Path) -> None:
    """Its bytes are in the object store no more."""
    where = (await desk.redis.hget(key, f"{which}.where")).decode()
    (objects / where).unlink()


async def torn_object(desk: Desk, key: str, which: str, objects: Path) -> None:
    """The object was cut."""
    path = objects / (await desk.redis.hget(key, f"{which}.where")).decode()
    path.write_bytes(path.read_bytes()[:1_000])


Damage = Callable[[Desk, str, str, Path], Awaitable[None]]
INLINE: list[Damage] = [flipped, torn, strange, incomplete]
LARGE: list[Damage] = [lost_object, torn_object, strange]


async def killed_in_the_middle(stack: Stack, desk: Desk, orders: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Tasks that have two checkpoints each and whose worker is gone; they wait for a recover."""
    ids = [(await stack.api.submit(data, kind=kind, recovery="manual"))["task_id"] for kind, data in orders]
    for task_id in ids:
        await until(partial(_twice_saved, stack, desk, task_id), "two checkpoints", within=60)
    stack.kill_workers()
    for task_id in ids:
        await stack.api.until_state(task_id, "paused")
    return ids


async def _twice_saved(stack: Stack, desk: Desk, task_id: str) -> bool:
    return bool(
        await desk.redis.hexists(keys.key("ckpt", task_id), "b.event")
        and (await stack.api.task(task_id))["length"] > 10
    )


async def recovered(stack: Stack, task_id: str, *states: str) -> Task:
    """Recover and wait."""
    assert (await stack.api.post(task_id, "recover")).status_code == 202
    return await stack.api.until_state(task_id, states, within=60)


def counting(trace: Path, size: int) -> tuple[str, dict[str, Any]]:
    return "counting", {"upto": UPTO, "trace": str(trace), "size": size, "pause_s": 0.2}


def starts(trace: Path) -> list[int]:
    """Where each run of a counting task began."""
    return [int(line.split()[1]) for line in trace.read_text().splitlines()]


async def test_the_newest_is_damaged_and_the_one_before_is_used(tmp_path: Path) -> None:
    """Each sort of damage at once, inline and in the object store: the state before, a warning, an exact end."""
    async with (
        QuickStack(concurrency=20, kinds=KINDS, data_dir=tmp_path / "data") as stack,
        direct(stack) as desk,
    ):
        objects = tmp_path / "data" / "objects"
        damages = [(damage, 10) for damage in INLINE] + [(damage, 400_000) for damage in LARGE]
        traces = [tmp_path / f"trace-{n}" for n in range(len(damages))]
        orders = [counting(trace, size) for trace, (_, size) in zip(traces, damages, strict=True)]
        ids = await killed_in_the_middle(stack, desk, orders)
        saved: list[int] = []
        for task_id, (damage, size) in zip(ids, damages, strict=True):
            key = keys.key("ckpt", task_id)
            where = (await desk.redis.hget(key, "a.where")).decode()
            assert (where == "inline") == (size < 1_000)
            saved.append(int(await desk.redis.hget(key, "b.offset")))
            await damage(desk, key, "a", objects)
        await stack.start_worker()
        for task_id, trace, offset in zip(ids, traces, saved, strict=True):
            task = await recovered(stack, task_id, "completed")
            assert "could not be used" in task["warning"]
            text = "".join(f"{n} " for n in range(UPTO))
            viewer = await Viewer(stack.url, task_id).follow()
            viewer.check()
            assert viewer.text == text
            assert starts(trace) == [0, text[:offset].count(" ")]
        await sound(desk, ids)
        for task_id in ids:
            assert (await stack.api.http.delete(f"/api/tasks/{task_id}")).status_code == 204
        left = [path for path in objects.rglob("*") if path.is_file()]
        # what was replaced, damaged or superseded is gone; a zombie's or a killed upload's bytes wait for the sweep
        assert len(left) <= len(LARGE), left


async def test_both_are_damaged(tmp_path: Path) -> None:
    """The text goes on from its log; the counter says that it cannot, and changes nothing."""
    async with (
        QuickStack(concurrency=20, kinds=KINDS, checkpoint_tokens=16, scripted_record=tmp_path) as stack,
        direct(stack) as desk,
    ):
        trace = tmp_path / "trace"
        text, count = await killed_in_the_middle(
            stack, desk, [("text", scripted(tokens=200, rate=40)), counting(trace, 10)]
        )
        for task_id in (text, count):
            await flipped(desk, keys.key("ckpt", task_id), "a", tmp_path)
            await strange(desk, keys.key("ckpt", task_id), "b", tmp_path)
        before = await stack.api.task(count)
        await stack.start_worker()
        task = await recovered(stack, text, "completed")
        assert "could not be used" in task["warning"]
        assert (await read_to_end(stack, text, story(tokens=200))).rewinds == 0
        assert (await stack.api.post(count, "recover")).status_code == 202
        await until(lambda: attempts(stack, count, 2), "the second attempt")
        task = await stack.api.until_state(count, "paused")
        assert task["reason"] == "checkpoint_failed"
        assert "none is left" in task["warning"]
        assert task["length"] == before["length"]
        assert starts(trace) == [0]
        await sound(desk, [text, count])


async def attempts(stack: Stack, task_id: str, number: int) -> bool:
    return bool((await stack.api.task(task_id))["attempts"] == number)
