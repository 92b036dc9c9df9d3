"""Everything with the `unbroken` command, as a person and as a script."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.api import scripted, story
from tests.support.nursery import command_line
from tests.support.processes import Stack, environment

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def run(shared: Stack, *arguments: str, ok: int = 0) -> bytes:
    """A command; its stdout. ok: the exit code that it must have."""
    said = await command_line(*arguments, env=place(shared))
    assert said.code == ok, said
    assert b"Traceback" not in said.err
    return said.out


async def run_afresh(shared: Stack, *arguments: str, stdin: bytes | None = None, ok: int = 0) -> tuple[bytes, bytes]:
    """The same with an interpreter of its own, between pipes; its stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unbroken", *arguments),
        env=place(shared),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), 60)
    assert process.returncode == ok, (process.returncode, out, err)
    assert b"Traceback" not in err
    return out, err


def place(shared: Stack) -> dict[str, str]:
    """Where the server and its Redis are."""
    return environment(url=shared.url, redis_url=shared.redis_url, data_dir=shared.folder)


async def run_json(shared: Stack, *arguments: str) -> Any:
    return json.loads(await run(shared, *arguments, "--json"))


def play(**script: Any) -> str:
    """--input for the scripted backend."""
    return json.dumps({"scripted": script})


async def test_submit_and_watch_gives_the_bytes_of_the_text(shared: Stack) -> None:
    out, _ = await run_afresh(shared, "submit", "Hi", "--watch", "--input", play(tokens=300, rate=300))
    assert out.decode() == story(seed=0, tokens=300, prompt="Hi")


async def test_a_prompt_from_a_pipe(shared: Stack) -> None:
    given = "Grüße 🌊".encode()
    out, _ = await run_afresh(shared, "submit", "--file", "-", "--watch", "--input", play(tokens=50), stdin=given)
    assert out.decode() == story(seed=0, tokens=50, prompt="Grüße 🌊")


async def test_a_batch_from_lines(shared: Stack) -> None:
    out, _ = await run_afresh(
        shared,
        *("submit", "Translate:", "--kind", "batch", "--file", "-", "--watch", "--input", play(tokens=5)),
        stdin=b"one\ntwo\n\nthree\n",
    )
    result = json.loads(out)
    assert [item["ok"] for item in result["items"]] == [True, True, True]


async def test_a_chain_from_markdown(shared: Stack) -> None:
    out, _ = await run_afresh(
        shared,
        *("submit", "--kind", "chain", "--file", "-", "--watch", "--input", play(tokens=5)),
        stdin=b"# Plan\nThink.\n\n# Write\nWrite it.\n",
    )
    assert b"Plan" in out
    assert b"Write" in out


async def test_the_life_of_a_task(shared: Stack) -> None:
    """submit, list, show, pause, watch (paused: 3), recover, watch (completed: 0), result."""
    script = play(tokens=200, rate=40)  # long enough for `pause` to come in time
    task_id = (await run(shared, "submit", "Hi", "--topic", "night", "--input", script)).decode().strip()
    await shared.api.until_length(task_id, 100)
    await run(shared, "pause", task_id)
    await shared.api.until_state(task_id, "paused")
    rows = [row.split("\t") for row in (await run(shared, "list", "--topic", "night")).decode().splitlines()]
    assert [row[:2] for row in rows] == [[task_id, "paused"]]
    assert (await run_json(shared, "show", task_id))["reason"] == "requested"
    assert b"state\tpaused" in await run(shared, "show", task_id)
    text = story(seed=0, tokens=200, prompt="Hi")
    seen = (await run(shared, "watch", task_id, ok=3)).decode()
    assert text.startswith(seen)
    assert (await run(shared, "recover", task_id)).startswith(b"recovering\tr-")
    assert (await run(shared, "watch", task_id)).decode() == text
    assert (await run(shared, "result", task_id)).decode() == text
    await run(shared, "recover", task_id, ok=1)


async def test_cancel_and_what_is_not_there(shared: Stack) -> None:
    task = await shared.api.submit(scripted(tokens=10_000, rate=20))
    assert (await run(shared, "cancel", task["task_id"])).strip() == b"cancelled"
    await run(shared, "watch", task["task_id"], ok=4)
    for command in ("show", "watch", "result", "pause", "cancel", "recover"):
        assert await run(shared, command, "s0-00000000000000000000000000", ok=1) == b""


async def test_dead_letters_and_replay(shared: Stack) -> None:
    failing = play(tokens=20, fail="permanent", fail_at=10)
    ids = [(await run(shared, "submit", "x", "--input", failing)).decode().strip() for _ in range(3)]
    for task_id in ids:
        await run(shared, "watch", task_id, ok=1)
    groups = (await run_json(shared, "dead-letters"))["groups"]
    (group,) = [g["group"] for g in groups if set(g["examples"]) & set(ids)]
    listed = await run(shared, "dead-letters", "--group", group)
    assert {row.split(b"\t")[0].decode() for row in listed.splitlines()} == set(ids)
    assert (await run(shared, "replay", ids[0])).strip() == b"replayed\t1"
    assert (await run(shared, "replay", "--group", group)).strip() == b"replayed\t2"
    assert (await run(shared, "replay", "--all")).strip() == b"replayed\t0"
    for task_id in ids:
        await run(shared, "watch", task_id)
    await run(shared, "replay", ok=2)


async def test_stats_audit_and_doctor(shared: Stack) -> None:
    task_id = (await run(shared, "submit", "Hi", "--input", play(tokens=5))).decode().strip()
    await run(shared, "watch", task_id)
    assert await run_json(shared, "stats")
    assert await run(shared, "stats")
    trail = await run_json(shared, "audit", "--task", task_id)
    assert [(entry["from"], entry["to"]) for entry in trail][-1] == ("processing", "completed")
    assert b"0 differences" in await run(shared, "doctor")


async def test_the_same_key_twice_is_one_task(shared: Stack) -> None:
    arguments = ("submit", "Hi", "--idempotency-key", "once", "--input", play(tokens=5))
    assert await run(shared, *arguments) == await run(shared, *arguments)


async def test_what_the_server_refuses_is_said_with_the_field(shared: Stack) -> None:
    _, err = await run_afresh(shared, "submit", "Hi", "--priority", "urgent", ok=1)
    assert b"priority" in err
