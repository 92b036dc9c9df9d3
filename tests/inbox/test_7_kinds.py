"""Kinds of people's own: from a module or a package, async or plain, with a state that is no text; and a broken one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from examples.heat import Heat
from tests.support.api import Api
from tests.support.processes import environment
from tests.support.up import Up
from tests.support.viewer import Viewer
from tests.support.wait import until
from unbroken.tasks.kind import Run, Text

ROOT = Path(__file__).parents[2]
GRID = {"size": 150, "steps": 4_000, "every": 200}

COUNTING = """
    from pydantic import BaseModel
    from unbroken import Checkpoint, Item, Kind, Progress, Text


    class Words(Kind):
        name = "words"

        class Input(BaseModel):
            text: str

        def total(self, data):
            return len(data.text.split())

        def run(self, run):  # a plain generator
            words = run.input.text.split()
            done = run.state["done"] if run.state else 0
            for number, word in enumerate(words[done:], done + 1):
                yield Text(f"{number}: {word}\\n")
                yield Progress(number, len(words))
                yield Checkpoint({"done": number}, milestone=True)


    class Lengths(Kind):
        name = "lengths"
        unit = "items"

        class Input(BaseModel):
            words: list[str]

        def total(self, data):
            return len(data.words)

        async def run(self, run):
            for index, word in enumerate(run.input.words):
                if index not in run.items:
                    error = None if word else {"code": "empty", "message": "There is no word."}
                    yield Item(index, len(word) if word else None, error)
"""


def package(folder: Path) -> Path:
    """An installed package with an entry point, as pip leaves it."""
    (folder / "counting_kinds.py").write_text(textwrap.dedent(COUNTING))
    info = folder / "counting_kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[unbroken.kinds]\ncounting = counting_kinds\n")
    return folder


def undisturbed() -> str:
    """What one run of the example without any trouble writes."""

    class Plain:
        state = None
        input = Heat.Input(**GRID)

    run: Run = Plain()  # type: ignore[assignment]
    return "".join(update.text for update in Heat().run(run) if isinstance(update, Text))


async def test_three_kinds_with_one_command_and_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(package(tmp_path)))
    async with Up("--workers", "1", kinds="examples.heat", checkpoint_s=0.1) as up:
        task_id = (await up.api.submit(GRID, kind="heat"))["task_id"]
        await until(partial(_saved, up.api, task_id), "a saved grid")
        assert up.kill("unbroken worker") == 1
        viewer = await Viewer(up.url, task_id).follow()
        viewer.check()
        assert viewer.text == undisturbed(), "to the last bit"
        task = await up.api.task(task_id)
        assert (task["attempts"], task["crashes"], task["total"], task["progress"]) == (2, 1, 4_000, 1)

        words = await up.api.submit({"text": "one two three"}, kind="words")
        await up.api.until_state(words["task_id"], "completed")
        assert await up.api.text(words["task_id"]) == "1: one\n2: two\n3: three\n"

        lengths = await up.api.submit({"words": ["a", "", "abc"]}, kind="lengths")
        task = await up.api.until_state(lengths["task_id"], "completed")
        assert task["warning"] == "1 of 3 items failed."
        result = (await up.api.http.get(task["links"]["result"])).json()["items"]
        assert [item.get("result") for item in result] == [1, None, 3]

        wrong = await up.api.http.post("/api/tasks", json={"kind": "words", "input": {"txt": 1}})
        assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "input.text")
        unknown = await up.api.http.post("/api/tasks", json={"kind": "word", "input": {}})
        assert "batch, chain, heat, lengths, text, words" in unknown.json()["errors"][0]["message"]


async def _saved(api: Api, task_id: str) -> bool:
    task = await api.task(task_id)
    return bool(task["checkpoint"]) and task["progress"] > 0.1


async def test_a_kind_that_cannot_be_imported_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "broken_kinds.py").write_text("import a_module_that_nobody_has\n")
    commands = (("worker",), ("up", "--backend", "scripted", "--port", "0"))  # `up` says what its server says
    said = await asyncio.gather(*(_fails(tmp_path, *command) for command in commands))
    for command, err in zip(commands, said, strict=True):
        assert "UNBROKEN_KINDS: module broken_kinds cannot be imported: ModuleNotFoundError" in err, command
        assert "'a_module_that_nobody_has'" in err
        assert "Traceback" not in err


async def _fails(folder: Path, *command: str) -> str:
    """What it says, started in that folder."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unbroken", *command),
        env=environment(kinds="broken_kinds", data_dir=folder / "data", backend="scripted"),
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    return err.decode()


async def test_a_module_in_the_current_folder_is_found(tmp_path: Path) -> None:
    """As a person starts it who has written one file."""
    (tmp_path / "my_kinds.py").write_text(textwrap.dedent(COUNTING))
    code = "from unbroken.tasks import registry, settings; print(sorted(registry.specs(settings.load())))"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", code),
        env=environment(kinds="my_kinds"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert json.loads(out.decode().replace("'", '"')) == ["batch", "chain", "lengths", "text", "words"]
