"""Large states: through a file and the object store and back, without a second copy; and what is left behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from unbroken.tasks import codec, keys
from unbroken.tasks.connection import Calls
from unbroken.tasks.errors import Corrupt
from unbroken.tasks.objects import Missing, Objects, name_of
from unbroken.tasks.orphans import collect
from unbroken.tasks.spool import is_large, read, spooled

LIMIT = 1 << 28

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_a_spooled_state_is_the_state(state: dict[str, Any]) -> None:
    with spooled(state, schema=1, limit=LIMIT) as there:
        assert read(there.path, there.sealed, schema=1, limit=LIMIT) == state
        assert there.sealed.size == there.path.stat().st_size
        assert there.sealed.raw == len(codec.pack(state)), "the same bytes as the short way"
    assert not there.path.exists()


def test_what_is_large() -> None:
    assert not is_large({"n": 1, "text": "x" * 1_000, "ids": list(range(1_000))})
    assert is_large({"a": {"b": [bytes(600_000)]}})
    assert is_large({"ids": list(range(100_000))})


def test_large_parts_are_cut_right() -> None:
    state = {"a": random.Random(2).randbytes(3_000_001), "b": [bytearray(700_000)], "c": "é" * 900_000, 7: None}
    with spooled(state, schema=1, limit=LIMIT) as there:  # type: ignore[arg-type]
        assert read(there.path, there.sealed, schema=1, limit=LIMIT) == state


def test_above_the_limit_it_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"), spooled({"a": bytes(2_000_000)}, schema=1, limit=1_000_000):
        pass


def test_damage_is_found(tmp_path: Path) -> None:
    with spooled({"a": random.Random(3).randbytes(700_000)}, schema=1, limit=LIMIT) as there:
        sealed, good = there.sealed, there.path.read_bytes()
    path = tmp_path / "state"
    for bad in (good[:-1], good + b"x", b"\x00" + good[1:], b""):
        path.write_bytes(bad)
        with pytest.raises(Corrupt):
            read(path, sealed, schema=1, limit=LIMIT)
    path.write_bytes(good)
    with pytest.raises(Corrupt, match="schema"):
        read(path, sealed, schema=2, limit=LIMIT)
    with pytest.raises(Corrupt, match="limit"):
        read(path, sealed, schema=1, limit=1_000)
    lie = codec.Sealed("zstd", 1, 100, sealed.sha256, b"")
    with pytest.raises(Corrupt, match="declared"):
        read(path, lie, schema=1, limit=LIMIT)


def _task() -> str:
    return keys.new_task_id()


async def test_put_load_discard(tmp_path: Path) -> None:
    objects = Objects((tmp_path / "o").as_uri())
    task_id = _task()
    sealed = codec.seal({"n": 1, "pad": bytes(1_000)}, schema=1, limit=LIMIT)
    name = await objects.put(task_id, "17", 3, sealed)
    assert name == name_of(task_id, "17", 3, sealed.sha256)
    bare = codec.Sealed(sealed.codec, sealed.schema, sealed.raw, sealed.sha256, b"")
    assert await objects.load(name, bare, schema=1, limit=LIMIT) == {"n": 1, "pad": bytes(1_000)}
    await objects.discard(name)
    with pytest.raises(Missing):
        await objects.load(name, bare, schema=1, limit=LIMIT)
    await objects.discard(name)


@pytest.mark.parametrize("name", ["../../etc/passwd", "s0/x/1-1-ab", "", "s0/" + "a" * 90, "results/local/x.txt"])
async def test_other_names_are_never_read_or_deleted(tmp_path: Path, name: str) -> None:
    objects = Objects((tmp_path / "o").as_uri())
    await objects.archive("local", "x", "txt", b"kept")
    sealed = codec.seal({}, schema=1, limit=LIMIT)
    with pytest.raises(Corrupt):
        await objects.load(name, sealed, schema=1, limit=LIMIT)
    await objects.discard(name)
    assert await objects.archived("local", "x") == ("txt", b"kept")


async def test_orphans_are_collected_and_nothing_else(redis: Redis, tmp_path: Path) -> None:
    objects = Objects((tmp_path / "o").as_uri())
    calls = Calls(redis)
    one, two = _task(), _task()
    sealed = [codec.seal({"n": n}, schema=1, limit=LIMIT) for n in range(4)]
    kept = [await objects.put(one, "1", n, sealed[n]) for n in range(2)]
    orphans = [await objects.put(one, "1", 2, sealed[2]), await objects.put(two, "1", 1, sealed[3])]
    await objects.archive("local", one, "txt", b"result")
    await redis.hset(keys.key("ckpt", one), mapping={"a.where": kept[1], "b.where": kept[0]})
    assert await collect(objects, calls) == 0, "young ones may be on their way"
    past = time.time() - 7_200
    for path in (tmp_path / "o").rglob("*"):
        if path.is_file():
            os.utime(path, (past, past))
    fresh = await objects.put(two, "2", 1, sealed[0])
    assert await collect(objects, calls) == len(orphans)
    left = {str(p.relative_to(tmp_path / "o")) for p in (tmp_path / "o").rglob("*") if p.is_file()}
    assert left == {*kept, fresh, f"results/local/{one}.txt"}


MEASURED = """
import asyncio, random, sys, threading, time
from pathlib import Path
from unbroken.tasks.objects import Objects
from unbroken.tasks.spool import spooled
from unbroken.tasks import keys

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024

peak = 0
def watch():
    global peak
    while True:
        peak = max(peak, anonymous())
        time.sleep(0.002)

async def main():
    global peak
    size = 64 << 20
    objects = Objects(Path(sys.argv[1]).as_uri())
    await objects.archive("x", "y", "txt", b"warm")
    state = {"n": 1, "blob": random.Random(1).randbytes(size)}
    threading.Thread(target=watch, daemon=True).start()
    before = peak = anonymous()
    with spooled(state, schema=1, limit=1 << 30) as there:
        name = await objects.put_file(keys.new_task_id(), "1", 1, there.sealed, there.path)
        sealed = there.sealed
    saving = peak - before
    check = hash(state["blob"])
    del state
    before = peak = anonymous()
    again = await objects.load(name, sealed, schema=1, limit=1 << 30)
    loading = peak - before
    assert hash(again["blob"]) == check
    print(saving / size, loading / size)

asyncio.run(main())
"""


def test_64_mib_are_saved_and_loaded_in_less_than_twice_their_size(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stderr
    saving, loading = map(float, run.stdout.split())
    assert saving < 1, "beside the state itself: pieces"
    assert loading < 2
