"""The supervisor with real child processes: order, restarts, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.wait import until, until_sync
from unbroken.cli.child import Part
from unbroken.cli.logs import Output
from unbroken.cli.place import CannotStart
from unbroken.cli.supervisor import Supervisor

# Writes "NAME up", and "NAME down" on SIGTERM, to the diary; and its process id.
STEADY = """
import os, signal, sys
name, diary = sys.argv[1:]
def note(what):
    with open(diary, "a") as file: file.write(f"{name} {what}\\n")
def down(*_):
    note("down"); sys.exit(0)
signal.signal(signal.SIGTERM, down)
print("hello from", name, flush=True)
note("up")
while True: signal.pause()
"""


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    path = tmp_path / "diary"
    path.touch()
    return path


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Output]:
    made = Output(tmp_path)
    yield made
    made.close()


def part(name: str, diary: Path, ready: Callable[[], Awaitable[bool]] | None = None) -> Part:
    """A part that notes its ups and downs, ready when it has noted the first up."""

    async def noted() -> bool:
        return f"{name} up" in diary.read_text()

    argv = [sys.executable, "-I", "-S", "-c", STEADY, name, str(diary)]
    return Part(name, argv, dict(os.environ), ready or noted, patience_s=20, grace_s=5)


async def test_parts_start_in_order_and_stop_in_the_opposite_order(diary: Path, output: Output) -> None:
    supervisor = Supervisor([[part("database", diary)], [part("server", diary)]], output)
    ready = asyncio.Event()
    running = asyncio.create_task(supervisor.run(ready.set))
    await asyncio.wait_for(ready.wait(), 20)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 20)
    assert diary.read_text().split("\n") == [
        "database up",
        "server up",
        "server down",
        "database down",
        "",
    ]
    assert "server    | hello from server" in output.path.read_text()


async def test_what_dies_is_back_again_and_again(diary: Path, output: Output) -> None:
    supervisor = Supervisor([[part("worker-1", diary)]], output)
    ready = asyncio.Event()
    running = asyncio.create_task(supervisor.run(ready.set))
    await asyncio.wait_for(ready.wait(), 20)
    for times in range(1, 4):
        (victim,) = [p for p in psutil.Process().children() if "worker-1" in p.cmdline()]
        victim.kill()
        await until(partial(_ups, diary, times + 1), "the worker to be back")
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(running, 20)
    assert output.path.read_text().count("was killed; starting it again") == 3


async def test_a_part_that_cannot_start_ends_everything_and_its_words_are_shown(diary: Path, output: Output) -> None:
    async def never() -> bool:
        return False

    argv = [sys.executable, "-c", "import sys; sys.exit('the port is haunted')"]
    broken = Part("server", argv, dict(os.environ), never, patience_s=30)
    supervisor = Supervisor([[part("database", diary)], [broken]], output)
    with pytest.raises(CannotStart, match=r"server did not start(?s:.*)the port is haunted"):
        await supervisor.run(lambda: None)
    assert diary.read_text() == "database up\ndatabase down\n"


async def test_a_part_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path, output: Output) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True)\n"
    stubborn += f"open({str(tmp_path / 'here')!r}, 'w').close()\nwhile True: signal.pause()"

    async def here() -> bool:
        return (tmp_path / "here").exists()

    argv = [sys.executable, "-I", "-S", "-c", stubborn]
    before = psutil.Process().children()  # the database that other tests share
    supervisor = Supervisor([[Part("worker-1", argv, {}, here, patience_s=20, grace_s=0.3)]], output)
    ready = asyncio.Event()
    running = asyncio.create_task(supervisor.run(ready.set))
    await asyncio.wait_for(ready.wait(), 20)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 20)
    assert "did not stop in 0.3 s and is killed" in output.path.read_text()
    assert psutil.Process().children() == before


def test_children_die_with_a_killed_supervisor(tmp_path: Path, diary: Path) -> None:
    program = f"""
import asyncio, pathlib
from tests.cli.test_supervisor import part
from unbroken.cli.logs import Output
from unbroken.cli.supervisor import Supervisor
diary = pathlib.Path({str(diary)!r})
stages = [[part("database", diary)], [part("worker-1", diary), part("worker-2", diary)]]
supervisor = Supervisor(stages, Output(pathlib.Path({str(tmp_path)!r})))
asyncio.run(supervisor.run(lambda: print("ready", flush=True)))
"""
    supervisor = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == "ready\n"
    children = psutil.Process(supervisor.pid).children()
    assert len(children) == 3
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    until_sync(lambda: not any(_lives(child) for child in children), "the children to die")


def _ups(diary: Path, times: int) -> bool:
    return diary.read_text().count("worker-1 up") == times


def _lives(process: psutil.Process) -> bool:
    """An orphan nobody has waited for is a zombie: dead enough."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
