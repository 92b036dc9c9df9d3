"""The store of large checkpoints fails: in the middle of an upload, for a moment, for long, with answers that are not
what was put there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import BaseError

from tests.faults.ground import direct, lines, sound
from tests.support.nursery import QuickStack
from tests.support.s3 import S3, Fault, What
from unbroken.tasks import codec, keys, objects
from unbroken.tasks.errors import Corrupt
from unbroken.tasks.objects import Objects
from unbroken.tasks.spool import spooled

URL = "s3://bucket/prefix"
LIMIT = 1 << 28
STATE: dict[str, Any] = {"a": random.Random(1).randbytes(12_000_000)}  # three parts
UPTO = 12


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A store that works until it is told otherwise."""
    with S3() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


async def _put(where: Objects) -> tuple[str, codec.Sealed]:
    with spooled(STATE, schema=1, limit=LIMIT) as large:
        name = await where.put_file(keys.new_task_id(), "1", 1, large.sealed, large.path)
        return name, large.sealed


@pytest.mark.parametrize(
    ("what", "fault"),
    [("part", "403"), ("part", "reset"), ("part", "500"), ("part", "hang"), ("finish", "403"), ("begin", "403")],
)
async def test_an_upload_that_breaks_in_the_middle_leaves_nothing(
    s3: S3, monkeypatch: pytest.MonkeyPatch, what: What, fault: Fault
) -> None:
    """No object, no half upload that costs money for ever; and the next one goes through."""
    monkeypatch.setenv("AWS_TIMEOUT", "1s")
    monkeypatch.setattr(objects, "RETRY_S", 0.5)
    where = Objects(URL)
    s3.trouble(what, fault, after=0 if what != "part" else 1)
    with pytest.raises(BaseError):
        await _put(where)
    assert s3.objects == {}
    assert s3.open == {}
    s3.heal()
    name, sealed = await _put(where)
    assert list(s3.objects) == [f"prefix/{name}"]
    assert await where.load(name, sealed, schema=1, limit=LIMIT) == STATE


async def test_a_moment_of_trouble_is_tried_again(s3: S3) -> None:
    where = Objects(URL)
    for what in ("begin", "part", "finish", "get"):
        s3.trouble(what, "500", times=2)
    name, sealed = await _put(where)
    assert await where.load(name, sealed, schema=1, limit=LIMIT) == STATE


@pytest.mark.parametrize(
    ("fault", "raises"), [("short", Corrupt), ("other", Corrupt), ("403", BaseError), ("reset", BaseError)]
)
async def test_what_comes_back_is_what_was_put_or_nothing(s3: S3, fault: Fault, raises: type[Exception]) -> None:
    where = Objects(URL)
    name, sealed = await _put(where)
    s3.trouble("get", fault)
    with pytest.raises(raises):
        await where.load(name, sealed, schema=1, limit=LIMIT)


async def test_a_task_waits_for_a_person_when_nothing_can_be_saved_and_goes_on_when_it_can(
    s3: S3, tmp_path: Path
) -> None:
    """A moment is not noticed; a lasting refusal pauses the task with a word that says why; what comes back short
    after that is passed over for the one before; a store that is away costs a try."""
    kinds = {"kinds": "tests.support.kinds_for_faults", "objects_url": URL, "backoff_base_s": 0.1}
    async with QuickStack(workers=1, **kinds) as stack, direct(stack) as desk:  # type: ignore[arg-type]
        s3.trouble("put", "500", times=2, after=2)
        s3.trouble("put", "403", after=4)
        given = {"upto": UPTO, "size": 600_000, "trace": str(tmp_path / "trace")}
        task_id = (await stack.api.submit(given, kind="counting"))["task_id"]
        task = await stack.api.until_state(task_id, "paused")
        assert task["reason"] == "checkpoint_failed"
        assert task["warning"] == "Checkpoint not saved (3 in a row): the object store failed (PermissionDeniedError)"
        saved = task["checkpoint"]
        assert (saved["where"], saved["offset"]) == ("object", task["length"] - 6), "three numbers were not saved"
        s3.heal()
        s3.trouble("get", "403", times=1)  # away: tried again
        s3.trouble("get", "short", times=1)  # damaged: the one before it
        assert (await stack.api.post(task_id, "recover")).status_code == 202
        task = await stack.api.until_state(task_id, "completed")
        assert (task["errors"], task["crashes"]) == (1, 0)
        assert "the one before it was used" in task["warning"]
        begun = [int(line.split()[1]) for line in (tmp_path / "trace").read_text().splitlines()]
        assert begun == [0, saved["offset"] // 2 - 1]
        assert await stack.api.text(task_id) == "".join(f"{n} " for n in range(UPTO))
        await sound(desk, [task_id])
        assert len(s3.objects) == 2, "the newest two"
        assert not lines(stack.workers[0].log, "Traceback")
