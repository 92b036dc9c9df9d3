"""What the command line says where a newcomer stood and wondered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.desk import Terminal
from tests.server.author import begin
from tests.server.site import running
from tests.support.desk import Desk
from unbroken.cli import place
from unbroken.server.guards import check
from unbroken.tasks.registry import BadKind, user_kinds
from unbroken.tasks.settings import BadSetting, Settings, load


async def test_a_group_that_does_not_exist_is_no_success(terminal: Terminal, desk: Desk) -> None:
    for command in ("replay", "dead-letters"):
        assert "group 'nope'" in (await terminal(command, "--group", "nope", code=1)).err
    author = await begin(desk)
    await desk.fail(author.held.lease, retryable=False)
    group = (await terminal("dead-letters")).out.split("\t")[0]
    assert author.task.id in (await terminal("dead-letters", "--group", group)).out
    assert (await terminal("replay", "--group", group)).out == "replayed\t1\n"


async def test_an_ended_task_is_deleted(terminal: Terminal) -> None:
    task_id = (await terminal("submit", "x")).out.strip()
    assert "pending" in (await terminal("delete", task_id, code=1)).err
    await terminal("cancel", task_id)
    assert (await terminal("delete", task_id)).out == "deleted\n"
    await terminal("show", task_id, code=1)
    await terminal("delete", task_id, code=1)


async def test_a_revoked_key_as_json(terminal: Terminal) -> None:
    made = json.loads((await terminal("keys", "create", "ann", "--json")).out)
    gone = json.loads((await terminal("keys", "revoke", made["key_id"], "--json")).out)
    assert gone == {"key_id": made["key_id"], "revoked": True}


async def test_numbers_and_addresses_are_refused_in_our_words(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (await terminal("submit", "x", "--max-tokens", "many", code=2)).err
    assert "Must be a whole number." in said
    assert json.loads((await terminal("list", "--limit", "0", "--json", code=2)).err)["error"] == "Must be 1 or more."
    assert "begins with http://" in (await terminal("list", "--url", "localhost:9390", code=2)).err
    monkeypatch.setenv("UNBROKEN_WORKERS", "zero")
    assert "UNBROKEN_WORKERS" in (said := (await terminal("up", code=2)).err)
    assert "Must be a whole number." in said


def test_each_bad_setting_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBROKEN_PORT", "many")
    monkeypatch.setenv("UNBROKEN_LEASE_S", "0")
    with pytest.raises(BadSetting) as caught:
        load()
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()] == [
        "UNBROKEN_PORT",
        "UNBROKEN_LEASE_S",
    ]


def test_a_module_without_a_kind_is_named_with_its_variable() -> None:
    with pytest.raises(BadKind, match="UNBROKEN_KINDS: module unbroken has no class"):
        user_kinds(Settings(kinds="unbroken"))


async def test_a_kind_without_a_prompt_says_that_it_wants_json(
    desk: Desk, settings: Settings, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(settings.model_copy(update={"kinds": "examples.heat", "submits_per_minute": 1})) as site:
        monkeypatch.setenv("UNBROKEN_URL", site.url)
        said = (await terminal("submit", "--kind", "heat", "hello", code=1)).err
        assert """its input is a JSON object, such as '{"every": "…", "size": "…", "steps": "…"}'""" in said
        assert "no such field" not in said
        await terminal("submit", "--kind", "heat", '{"size": 5}')
        limited = (await terminal("submit", "--kind", "heat", '{"size": 5}', code=1)).err
        assert "More than 1 tasks a minute; again in " in limited


async def test_the_first_key_is_made_where_the_server_looks(settings: Settings, tmp_path: Path, desk: Desk) -> None:
    with pytest.raises(BadSetting, match=f"`unbroken keys create OWNER --data-dir {tmp_path}`"):
        await check(settings.model_copy(update={"host": "0.0.0.0"}))


def test_the_address_for_other_machines() -> None:
    assert place.from_outside("127.0.0.1", 80) is None
    found = place.from_outside("0.0.0.0", 80)
    assert found is None or found.endswith(":80")
    assert found is None or "127.0.0.1" not in found
