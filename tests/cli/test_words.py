"""What the command line says: about settings, databases, kinds of one's own, and what was refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from tests.cli.desk import Terminal
from tests.support.desk import Desk
from tests.support.llama import free_port
from tests.support.upstream import running_upstream
from unbroken import __version__
from unbroken.cli import main
from unbroken.cli.inputs import BadInput, build
from unbroken.tasks import keys
from unbroken.tasks.registry import strict
from unbroken.tasks.settings import BadSetting, load, unknown_variables


def test_a_variable_that_means_nothing_is_told() -> None:
    given = {"UNBROKEN_LEASES": "3", "UNBROKEN_PORT": "1", "UNBROKEN_KEY": "k", "UNBROKEN_TEST_X": "1", "LEASES": "1"}
    assert unknown_variables(given) == ["UNBROKEN_LEASES is no setting; did you mean UNBROKEN_LEASE_S?"]
    assert unknown_variables({"UNBROKEN_QQQ": ""}) == ["UNBROKEN_QQQ is no setting and does nothing."]


def test_the_command_line_says_so_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("UNBROKEN_LEASES", "3")
    assert main.run(["--version"]) == 0
    said = capsys.readouterr()
    assert said.out == f"unbroken {__version__}\n"
    assert said.err.count("did you mean UNBROKEN_LEASE_S?") == 1
    monkeypatch.setenv("UNBROKEN_SUPERVISED", "1")
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("setting", "raw", "says"),
    [
        ("backend_url", "foo", "UNBROKEN_BACKEND_URL: Must be an http:// or https:// address"),
        ("backend_url", "ftp://x/y", "Must be an http"),
        ("local_url", "127.0.0.1:8091", "UNBROKEN_LOCAL_URL: Must be an http"),
        ("redis_url", "foo", "UNBROKEN_REDIS_URL: Must be an address such as redis://"),
        ("redis_url", "http://localhost", "Must be an address such as redis://"),
        ("objects_url", "bucket", "UNBROKEN_OBJECTS_URL: Must be an address"),
        ("webhook_secret", "YWJjZA==", "UNBROKEN_WEBHOOK_SECRET: Must be whsec_ and the base64"),
        ("webhook_secret", "abc", "UNBROKEN_WEBHOOK_SECRET: Must be whsec_ and the base64"),
        ("port", "many", "UNBROKEN_PORT: Must be a whole number."),
        ("port", "70000", "UNBROKEN_PORT: Must be 65535 or less."),
        ("lease_s", "0", "UNBROKEN_LEASE_S: Must be 0.5 or more."),
        ("backend", "gpt", "UNBROKEN_BACKEND: Must be one of 'local', 'openai' or 'scripted'."),
        ("insecure", "maybe", "UNBROKEN_INSECURE: Must be true or false."),
    ],
)
def test_a_bad_value_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch, setting: str, raw: str, says: str) -> None:
    monkeypatch.setenv(f"UNBROKEN_{setting.upper()}", raw)
    with pytest.raises(BadSetting) as caught:
        load()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "raw"),
    [
        ("backend_url", "http://gpu-box:8000/v1"),
        ("redis_url", "unix://:secret@/run/valkey.sock"),
        ("redis_url", "rediss://user:secret@redis.example.com:6380/1"),
        ("objects_url", "s3://bucket/prefix"),
        ("webhook_secret", "whsec_" + "QUJD" * 8),
        ("webhook_secret", "QUJD" * 8),
    ],
)
def test_good_values(monkeypatch: pytest.MonkeyPatch, setting: str, raw: str) -> None:
    monkeypatch.setenv(f"UNBROKEN_{setting.upper()}", raw)
    settings = load()
    assert "secret" not in settings.redis_shown


def test_a_kind_of_ones_own_takes_json_as_its_argument() -> None:
    assert build("heat", '{"size": 64}', None, {"every": 2}) == {"size": 64, "every": 2}
    assert build("heat", '{"size": 64}', '{"steps": 9, "size": 1}', {}) == {"steps": 9, "size": 64}
    assert build("words", "five", None, {}) == {"prompt": "five"}
    assert build("text", '{"a": 1}', None, {}) == {"prompt": '{"a": 1}'}, "a text may look like JSON"
    with pytest.raises(BadInput, match="not JSON"):
        build("heat", '{"size": 64', None, {})


async def test_errors_are_json_when_that_is_asked_for(terminal: Terminal) -> None:
    refused = json.loads((await terminal("submit", "x", "--input", '{"promt": 1}', "--json", code=1)).err)
    assert refused["status"] == 422
    assert refused["errors"][0]["field"] == "input.promt"
    assert "Did you mean prompt?" in refused["error"]
    assert json.loads((await terminal("submit", "--json", code=2)).err)["error"].startswith("give a prompt")
    assert "no task" not in json.loads((await terminal("list", "--state", "done", "--json", code=1)).err)["error"]


async def test_replaying_what_cannot_be_replayed_fails(terminal: Terminal) -> None:
    said = await terminal("replay", "nope", code=1)
    assert (said.out, said.err) == ("replayed\t0\n", "nope: There is no such task.\n")
    assert json.loads((await terminal("replay", "nope", "--json", code=1)).out)["replayed"] == 0
    await terminal("replay", "--all")


async def test_keys_are_in_the_audit_and_owners_are_named(terminal: Terminal, desk: Desk) -> None:
    made = await terminal("keys", "create")
    assert "owner local" in made.err
    key_id = made.out.split("_")[1]
    assert "owner local" not in (await terminal("keys", "create", "ann")).err
    await terminal("keys", "revoke", key_id)
    told = [entry for entry in json.loads((await terminal("audit", "--json")).out) if entry["op"].startswith("key_")]
    assert [(entry["op"], entry["owner"], entry["reason"] == key_id) for entry in told] == [
        ("key_create", "local", True),
        ("key_create", "ann", False),
        ("key_revoke", "local", True),
    ]
    secret = made.out.strip().split("_")[2]
    assert secret not in json.dumps(told)
    assert await desk.redis.hget(keys.key("keys"), key_id) is None


def test_no_key_is_made_where_nobody_will_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REDIS_URL", "DATA_DIR"):
        monkeypatch.delenv(f"UNBROKEN_{name}", raising=False)
    assert main.run(["keys", "create", "bob"]) == 1
    said = capsys.readouterr().err
    assert f"there is no database in {tmp_path / '.unbroken'}" in said
    assert "--data-dir" in said
    assert list(tmp_path.iterdir()) == []


def test_the_database_is_named_when_nobody_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REDIS_URL", "DATA_DIR"):
        monkeypatch.delenv(f"UNBROKEN_{name}", raising=False)
    assert main.run(["keys", "create", "bob", "--data-dir", ".unbroken"]) == 0
    assert "database is" not in capsys.readouterr().err
    assert main.run(["keys", "list"]) == 0
    said = capsys.readouterr()
    assert "bob" in said.out
    assert re.search(r"The database is unix:///\S+/valkey\.sock\.", said.err)


async def test_doctor_asks_the_model_and_counts_workers(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    async def says(what: str, code: int = 0) -> tuple[str, str]:
        found = json.loads((await terminal("doctor", "--json", code=code)).out)
        return next((one["level"], one["says"]) for one in found if one["what"] == what)

    monkeypatch.setenv("UNBROKEN_BACKEND", "openai")
    monkeypatch.setenv("UNBROKEN_BACKEND_URL", f"http://127.0.0.1:{free_port()}/v1")
    level, words = await says("model", code=1)
    assert level == "bad"
    assert "cannot be reached" in words
    with running_upstream() as upstream:
        monkeypatch.setenv("UNBROKEN_BACKEND_URL", f"{upstream.url}/v1")
        assert (await says("model"))[0] == "ok"
        assert await says("processes") == ("note", "connected: 0 workers, a server")


def test_what_a_kind_of_ones_own_does_not_know_is_refused() -> None:
    class Loose(BaseModel):
        size: int

    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    with pytest.raises(ValidationError):
        strict(Loose).model_validate({"size": 1, "sise": 2})
    assert strict(Loose)(size=1).model_dump() == {"size": 1}
    assert isinstance(strict(Loose)(size=1), Loose)
    assert strict(Open) is Open
