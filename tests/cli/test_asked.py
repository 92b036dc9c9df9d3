"""What was asked is found again from the terminal."""

from __future__ import annotations

import json

from tests.cli.desk import Terminal


async def test_lists_carry_titles(terminal: Terminal) -> None:
    await terminal("submit", "Write about a lighthouse.\nAt length.")
    await terminal("submit", "Translate:", "--kind", "batch", "--input", '{"items": ["a"]}')
    rows = (await terminal("list")).out.splitlines()
    assert [row.split("\t")[-2] for row in rows] == ["Translate:", "Write about a lighthouse."]


async def test_show_gives_the_title_and_the_whole_input(terminal: Terminal) -> None:
    task_id = (await terminal("submit", "Write about a lighthouse.\nAt length.")).out.strip()
    assert "title\tWrite about a lighthouse.\n" in (await terminal("show", task_id)).out
    assert json.loads((await terminal("show", task_id, "--input")).out) == {
        "prompt": "Write about a lighthouse.\nAt length."
    }


async def test_the_json_of_a_task_is_the_task_object_and_nothing_more(terminal: Terminal) -> None:
    task_id = (await terminal("submit", "Secret words")).out.strip()
    for command in (("show", task_id, "--json"), ("list", "--json")):
        assert "Secret" not in (await terminal(*command)).out


async def test_a_refusal_is_said_once(terminal: Terminal) -> None:
    said = await terminal("submit", "Hi", "--topic", "a\nb", code=1)
    assert said.err == "unbroken: topic: Must be one line, without control characters.\n"
    said = await terminal("submit", "Hi", "--topic", "a\nb", "--sender", "", code=1)
    assert said.err.splitlines()[0] == "unbroken: 2 fields are not right"
    assert len(said.err.splitlines()) == 3
