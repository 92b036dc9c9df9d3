"""A newer version writes to the same database (a rollout, or one that is taken back): what this version does not know
is passed over where it can be, and told where it cannot. Two real versions: `python -m tests.faults.upgrade`."""

from __future__ import annotations

import asyncio

from tests.faults.ground import direct, lines, read_to_end
from tests.support.api import scripted, story
from tests.support.desk import Desk
from tests.support.nursery import QuickStack
from tests.support.viewer import NAMES, Viewer
from unbroken.tasks import keys
from unbroken.tasks.audit import recount

# What a script of a newer version would do: an event of a new name, counted like every other, and pushed.
NOTE = """#!lua
local id = redis.call('HGET', KEYS[1], 'epoch') .. '-' .. redis.call('HINCRBY', KEYS[1], 'n', 1)
redis.call('XADD', ARGV[1], id, 'e', 'note', 'd', '{"a":1}', 'y', 'new')
local n = string.match(id, '-(.*)')
redis.call('PUBLISH', ARGV[2], n .. ' ' .. n .. '\\nid: ' .. id .. '\\nevent: note\\ndata: {"a":1}\\n\\n')
redis.call('HSET', KEYS[1], 'flavour', 'new', 'mood', '')
return id
"""
TOKENS = 200


async def note(desk: Desk, task_id: str) -> str:
    """Returns its id."""
    names = keys.key("ev", task_id), keys.key("feed", task_id)
    return str((await desk.redis.eval(NOTE, 1, keys.key("task", task_id), *names)).decode())


async def test_events_and_fields_of_a_newer_version_are_passed_over() -> None:
    async with QuickStack(workers=1) as stack, direct(stack) as desk:
        task_id = (await stack.api.submit(scripted(tokens=TOKENS, rate=60)))["task_id"]
        early = Viewer(stack.url, task_id, names=NAMES | {"note"})
        watching = asyncio.create_task(early.follow())
        seen = []
        for length in (100, 300, 500):
            await early.seen(length)
            seen.append(await note(desk, task_id))
        await watching
        early.check()
        assert (early.text, early.rewinds) == (story(tokens=TOKENS), 0)
        await read_to_end(stack, task_id, story(tokens=TOKENS))
        answer = await stack.api.http.get(f"/api/tasks/{task_id}/stream", headers={"Last-Event-ID": seen[1]})
        assert answer.status_code == 200
        assert answer.text.count("event: done") == 1
        assert "flavour" not in await stack.api.task(task_id)
        assert not lines(stack.servers[0].log, "Traceback")


async def test_a_state_of_a_newer_version_harms_only_its_task() -> None:
    async with QuickStack(workers=1) as stack, direct(stack) as desk:
        api = stack.api
        strange = (await api.submit(scripted(tokens=20)))["task_id"]
        fine = (await api.submit(scripted(tokens=20)))["task_id"]
        for task_id in (strange, fine):
            await api.until_state(task_id, "completed")
        waiting = (await api.submit(scripted(tokens=20), run_at="2100-01-01T00:00:00Z"))["task_id"]
        for task_id in (strange, waiting):
            await desk.redis.hset(keys.key("task", task_id), "state", "dreaming")
        await desk.redis.zadd(keys.key("ready"), {waiting: 1})  # it came to the front of the queue
        await desk.redis.zadd(keys.key("ready", "local"), {waiting: 1})
        listed = (await api.http.get("/api/tasks")).json()["items"]
        assert [task["task_id"] for task in listed] == [fine]
        for path in ("", "/stream", "/result", "/history"):
            answer = await api.http.get(f"/api/tasks/{strange}{path}")
            assert answer.status_code == 404, path
            assert answer.headers["content-type"] == "application/problem+json", path
        for verb in ("recover", "pause"):
            assert (await api.post(strange, verb)).status_code in (404, 409), verb
        assert (await api.http.get("/api/stats")).status_code == 200
        assert (await api.http.get("/readyz")).status_code == 200
        assert (await api.submit(scripted(tokens=20)))["state"] == "pending"
        later = (await api.submit(scripted(tokens=20)))["task_id"]
        await api.until_state(later, "completed")
        (difference,) = (await recount(desk.store, repair=True)).differences[:1]
        assert "no state that this version knows" in difference
        assert await desk.redis.zscore(keys.key("done"), strange) is not None, "its place is left as it is"
        for process in (*stack.servers, *stack.workers):
            assert not lines(process.log, "Traceback"), process.tail()
        assert lines(stack.servers[0].log, f"{strange}.*dreaming")
