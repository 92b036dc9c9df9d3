"""`unbroken up`: one command, and it looks after everything."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from tests.support.api import scripted, story
from tests.support.nursery import command_line
from tests.support.processes import environment
from tests.support.up import Up
from tests.support.viewer import Viewer
from tests.support.wait import until


async def run(up: Up, *arguments: str) -> tuple[int, bytes, bytes]:
    """A command of the CLI, which finds the server by the data folder: exit code, stdout, stderr."""
    said = await command_line(*arguments, env=up.cli_env, within=90)
    return said.code, said.out, said.err


async def test_a_story_through_every_kind_of_death() -> None:
    """Up, submit, watch in a pipe; workers, server and database are killed; the text is exact."""
    async with Up("--workers", "2") as up:
        code, out, _ = await run(up, "submit", "Hi", "--input", '{"scripted": {"tokens": 600, "rate": 60}}')
        assert code == 0
        task_id = out.decode().strip()
        viewer = Viewer(up.url, task_id)
        watching = asyncio.gather(run(up, "watch", task_id), viewer.follow(within=100))
        for length, part in (
            (400, "unbroken worker"),
            (900, "unbroken server"),
            (1_400, "unbroken worker"),
            (1_900, "valkey-server"),
            (2_400, "unbroken worker"),
        ):
            await viewer.seen(length)
            await until(partial(up.kill, part), f"a living {part} to kill")  # the last one may be starting yet
        (code, out, err), _ = await watching
        viewer.check()
        text = story(seed=0, tokens=600, prompt="Hi")
        assert (code, out.decode(), err) == (0, text, b"")
        assert viewer.text == text
        assert viewer.rewinds == 0
        assert (await run(up, "result", task_id))[1].decode() == text
        await up.until_parts("unbroken worker", 2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Up]:
    """One for the tests that do it no harm."""
    async with Up("--workers", "1") as made:
        yield made


@pytest.mark.asyncio(loop_scope="module")
async def test_it_is_private_and_finds_its_own_way(running: Up) -> None:
    assert running.out.read_text().count("\n") == 1
    assert stat.S_IMODE((running.folder / "valkey" / "password").stat().st_mode) == 0o600
    (valkey,) = running.parts("valkey-server")
    assert [c for c in valkey.net_connections() if c.status == psutil.CONN_LISTEN] == []
    secret = (running.folder / "valkey" / "password").read_text().strip()
    for process in (*psutil.Process(running.process.pid).children(), psutil.Process(running.process.pid)):
        assert secret not in " ".join(process.cmdline())
    assert secret not in (running.folder / "logs" / "unbroken.log").read_text()
    code, out, _ = await run(running, "doctor")
    assert code == 0, out.decode()
    assert b"0 differences" in out


async def test_what_is_accepted_is_there_after_a_restart_of_everything() -> None:
    """G5: SIGTERM in the middle of a task, the same folder again, and the task goes on."""
    async with Up("--workers", "1") as up:
        task = await up.api.submit(scripted(tokens=300, rate=60))
        before = await Viewer(up.url, task["task_id"]).until_length(400)
        assert await up.stop() == 0
        assert not up.parts("unbroken") if up.process.poll() is None else True
        again = Up("--workers", "1", folder=up.folder)
        async with again:
            after = Viewer(again.url, task["task_id"], last_id=before.last_id, text=before.text)
            await after.follow()
            after.check()
            assert after.text == story(tokens=300)
            assert after.rewinds == 0
            done = await again.api.task(task["task_id"])
            assert (done["errors"], done["crashes"]) == (0, 0)
            assert await again.stop(signal.SIGINT) == 0


async def test_killed_with_minus_nine_it_leaves_nothing_running_and_can_start_again() -> None:
    async with Up("--workers", "2") as up:
        task = await up.api.submit(scripted(tokens=300, rate=60))
        before = await Viewer(up.url, task["task_id"]).until_length(300)
        children = psutil.Process(up.process.pid).children(recursive=True)
        assert len(children) >= 4
        up.process.kill()
        up.process.wait()
        await until(lambda: not psutil.wait_procs(children, timeout=0)[1], "its parts to die with it")
        async with Up("--workers", "1", folder=up.folder) as again:
            after = Viewer(again.url, task["task_id"], last_id=before.last_id, text=before.text)
            await after.follow()
            after.check()
            assert after.text == story(tokens=300)
            assert after.rewinds == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_a_second_one_and_a_taken_port_are_refused(running: Up, tmp_path: Path) -> None:
    """Before anything starts."""
    code, out, err = await run(running, "up", "--port", "0", "--data-dir", str(running.folder))
    assert (code, out) == (1, b"")
    assert f"already running at {running.url}".encode() in err
    port = running.url.rpartition(":")[2]
    code, out, err = await run(running, "up", "--port", port, "--data-dir", str(tmp_path / "other"))
    assert (code, out) == (1, b"")
    assert f"port {port} on 127.0.0.1 is in use".encode() in err
    assert not (tmp_path / "other" / "valkey" / "appendonlydir").exists()


async def test_another_address_needs_keys(tmp_path: Path) -> None:
    """A key can be made before the first start: the database runs for the length of that command."""
    up = Up("--host", "0.0.0.0", "--workers", "1", folder=tmp_path)
    code, out, err = await run(up, "up", *up.arguments)
    assert (code, out) == (1, b"")
    assert err.count(b"unbroken keys create") == 1
    code, out, err = await run(up, "keys", "create", "ann", "--label", "laptop")
    assert code == 0, err.decode()
    async with up:
        assert (await up.api.http.get("/api/tasks")).status_code == 401
        up.env["UNBROKEN_KEY"] = out.decode().strip()
        code, _, err = await run(up, "submit", "Hi", "--watch", "--max-tokens", "5")
        assert code == 0, err.decode()
        key_id = (await run(up, "keys", "list"))[1].decode().split("\t")[0]
        assert (await run(up, "keys", "revoke", key_id))[0] == 0
        await until(partial(_refused, up), "the revoked key to be refused")


async def _refused(up: Up) -> bool:
    code, _, err = await run(up, "list")
    return code == 1 and b"UNBROKEN_KEY" in err


async def test_an_outside_redis_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    up = Up(folder=tmp_path)
    code, out, err = await run(up, "up", *up.arguments, "--redis-url", f"redis://:pw@127.0.0.1:{port}/0")
    assert (code, out) == (1, b"")
    assert f"cannot reach Redis at redis://127.0.0.1:{port}/0".encode() in err
    assert err.count(b"\n") == 1
    assert b"pw@" not in err


async def test_with_an_outside_redis_there_is_no_embedded_one(valkey_url: str, redis: object) -> None:
    async with Up("--workers", "1", "--redis-url", valkey_url) as up:
        assert up.parts("valkey-server") == []
        task = await up.api.submit(scripted(tokens=20))
        await up.api.until_state(task["task_id"], "completed")


async def test_a_frozen_worker_does_not_hold_up_the_end() -> None:
    async with Up("--workers", "1") as up:
        (worker,) = up.parts("unbroken worker")
        os.kill(worker.pid, signal.SIGSTOP)
        assert await up.stop(within=40) == 0


async def test_bad_settings_are_one_sentence(tmp_path: Path) -> None:
    for name, value in (("LEASE_S", "soon"), ("PORT", "99999"), ("BACKEND", "magic"), ("LEASE_S", "-1")):
        said = await command_line("up", "--data-dir", str(tmp_path), env=environment(**{name: value}))
        assert said.code == 2
        assert f"UNBROKEN_{name}".encode() in said.err
        assert said.err.count(b"\n") == 1
