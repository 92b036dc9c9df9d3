"""`uv run python -m tests.faults.upgrade --before HEAD~50`: two versions of the product share one database.

Everything begins with the version of that commit: running texts, a batch, a chain, a paused task, a dead letter, one
that waits for its time. Then processes are replaced one by one by those of this version, in the middle of things, and
some back again (a rollout that is taken back). Every text has to be exact, nothing may be redone or lost, and what the
old version left behind has to be recovered, replayed and read by the new one. Needs the repository's history, so it is
a command and not part of the suite."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.ground import direct, lines, sound
from tests.support.api import scripted, story
from tests.support.processes import Process, Stack, environment
from tests.support.viewer import Viewer

HERE = Path(__file__).parents[2]
TOKENS = 700
SCRIPT = {"seed": 7, "tokens": 60, "rate": 20}


class Mixed(Stack):
    """A stack whose next processes run the code of `code`."""

    code = HERE

    def _start(self, role: str, **settings: object) -> Process:
        self._started += 1
        name = f"{role}-{self._started}" + ("-old" if self.code != HERE else "")
        env = environment(**{**self.settings, "redis_url": self.redis_url, **settings})
        env["PYTHONPATH"] = str(self.code)
        return Process(name, ["-P", "-m", "unbroken", role], env, self.folder / f"{name}.log")


async def _replace(stack: Mixed, code: Path, *, server: int | None = None) -> None:
    """One process goes in order, and one of the other version comes in its place."""
    stack.code = code
    if server is None:
        old = stack.workers.pop(0)
        await stack.start_worker()
        assert await old.stop() == 0, old.tail()
    else:
        assert await stack.servers[server].stop() == 0, stack.servers[server].tail()
        await stack.start_server(server)


async def upgrade(old: Path) -> None:
    """The whole way. Raises AssertionError."""
    stack = Mixed(servers=0, workers=0, concurrency=4)
    stack.code = old
    async with stack, direct(stack) as desk:
        for _ in range(2):
            await stack.start_server()
            await stack.start_worker()
        api = stack.api
        texts = [(await api.submit(scripted(seed=n, tokens=TOKENS, rate=25)))["task_id"] for n in range(4)]
        batch = {"instruction": "Say:", "items": list("abcdefgh"), "scripted": SCRIPT}
        steps = {"steps": [{"name": f"s{n}", "prompt": f"part {n}"} for n in range(4)], "scripted": SCRIPT}
        others = [
            (await api.submit(batch, kind="batch"))["task_id"],
            (await api.submit(steps, kind="chain"))["task_id"],
        ]
        viewers = [Viewer(stack.urls[n % 2], task_id) for n, task_id in enumerate(texts)]
        watching = asyncio.gather(*(viewer.follow(within=180) for viewer in viewers))
        paused = (await api.submit(scripted(tokens=300, rate=20)))["task_id"]
        dead = (await api.submit(scripted(tokens=100, fail="permanent", fail_at=50)))["task_id"]
        later = (await api.submit(scripted(tokens=20), run_at="2100-01-01T00:00:00Z"))["task_id"]
        await api.until_length(paused, 100)
        assert (await api.post(paused, "pause")).is_success
        await api.until_state(dead, "failed")
        await asyncio.gather(*(viewer.seen(150) for viewer in viewers))
        print("all is under way with the old version", flush=True)
        await _replace(stack, HERE)  # a new worker beside an old one, with old servers
        await asyncio.gather(*(viewer.seen(len(viewer.text) + 100) for viewer in viewers))
        await _replace(stack, HERE, server=0)  # one new server
        await asyncio.gather(*(viewer.seen(len(viewer.text) + 100) for viewer in viewers))
        await _replace(stack, HERE)  # new workers only
        await asyncio.gather(*(viewer.seen(len(viewer.text) + 100) for viewer in viewers))
        print("half of everything is new; a new worker is taken back", flush=True)
        await _replace(stack, old)
        await asyncio.gather(*(viewer.seen(len(viewer.text) + 100) for viewer in viewers))
        await _replace(stack, HERE, server=1)
        for _ in range(2):
            await _replace(stack, HERE)
        assert (await api.post(paused, "recover")).status_code == 202
        assert (await api.http.post("/api/dead-letters/replay", json={"task_ids": [dead]})).json()["replayed"] == 1
        await watching
        for n, viewer in enumerate(viewers):
            viewer.check()
            task = await api.task(viewer.task_id)
            assert (viewer.text, viewer.rewinds) == (story(seed=n, tokens=TOKENS), 0), viewer.task_id
            assert (task["state"], task["errors"], task["crashes"]) == ("completed", 0, 0), task
        for task_id in (*others, paused, dead):
            await api.until_state(task_id, {"completed", "failed"}, within=120)
        assert await api.text(paused) == story(tokens=300)
        assert (await api.task(dead))["state"] == "completed"
        await sound(desk, [*texts, *others, paused, dead, later])
        for log in sorted(stack.folder.glob("*.log")):
            assert not lines(log, "Traceback"), f"{log.name}:\n{log.read_text()[-3000:]}"
        print(f"{len(texts) + 5} tasks, all exact and sound", flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.upgrade", description=__doc__)
    parser.add_argument("--before", required=True, help="a commit: the version that everything begins with")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ub-before-") as folder:
        code = subprocess.run(["git", "archive", given.before], cwd=HERE, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=code, check=True)
        asyncio.run(upgrade(Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
