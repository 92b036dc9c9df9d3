"""One large state, saved and loaded as a worker does it; prints times and memory as JSON. See checkpoints.py."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.measure import peak, rss
from unbroken.tasks import keys
from unbroken.tasks.objects import Objects
from unbroken.tasks.spool import spooled

LIMIT = 1 << 30


async def main(size: int, content: str) -> None:
    """Out and back."""
    if content == "random":
        state = {"blob": os.urandom(size)}
    else:
        words = random.Random(7).choices([f"word{i} " for i in range(5_000)], k=size // 8)
        state = {"blob": "".join(words).encode().ljust(size, b".")[:size]}
    digest, length = hashlib.sha256(state["blob"]).digest(), len(state["blob"])
    with tempfile.TemporaryDirectory(prefix="ub-large-") as folder:
        objects = Objects(Path(folder).as_uri())
        task_id = keys.new_task_id()
        before, began = rss(os.getpid()), time.monotonic()
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is forgotten
        spooling = spooled(state, schema=1, limit=LIMIT)
        out = await asyncio.to_thread(spooling.__enter__)
        try:
            name = await objects.put_file(task_id, "1", 1, out.sealed, out.path)
        finally:
            spooling.__exit__(None, None, None)
        save, peak_save = time.monotonic() - began, peak()
        began = time.monotonic()
        back = await objects.load(name, out.sealed, schema=1, limit=LIMIT)
        load = time.monotonic() - began
        blob = back["blob"]
        assert isinstance(blob, bytes)
        same = len(blob) == length and hashlib.sha256(blob).digest() == digest
        print(json.dumps({
            "save": save, "load": load, "stored": out.sealed.size, "same": same,
            "before": before, "peak_save": peak_save, "peak_load": peak(),
        }))  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
