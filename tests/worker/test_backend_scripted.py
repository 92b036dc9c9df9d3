"""The scripted backend: the same text whatever happens in between, and faults where they were asked for."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.backends import Answer, ask, call, collect
from unbroken.tasks.errors import Permanent, Transient
from unbroken.tasks.inputs import Generation, Message, Script
from unbroken.tasks.kind import Prefix, Rewind
from unbroken.worker.backends.scripted import ScriptedBackend, script_text

PROMPT = "Tell me about the tides."
GOLDEN = "a<b0, \ubc14\ub2e41 glass2, glass3 cafe\u03014 \U0001f1f3\U0001f1f45, "


def script(**settings: object) -> Generation:
    return ask(PROMPT, scripted=Script.model_validate(settings))


def expected(seed: int, tokens: int) -> str:
    return script_text(seed, tokens, [Message(role="user", content=PROMPT)])


async def test_text_is_what_script_text_says_and_every_piece_knows_its_token() -> None:
    got = await collect(ScriptedBackend(), script(seed=7, tokens=300))
    assert got.text == expected(7, 300)
    assert got.tokens == tuple(range(300))
    assert not got.text.isascii()
    assert "\n" in got.text


async def test_rate_changes_the_time_and_not_the_text() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    got = await collect(ScriptedBackend(), script(seed=7, tokens=60, rate=400))
    assert loop.time() - began >= 59 / 400 - 0.01
    assert got.text == expected(7, 60)


async def test_seed_and_prompt_both_matter() -> None:
    assert expected(7, 50) != expected(8, 50)
    assert script_text(7, 50) != expected(7, 50)
    # The length of each part goes into the key: moving a letter between messages is another conversation.
    one = [Message(role="user", content="ab"), Message(role="user", content="c")]
    two = [Message(role="user", content="a"), Message(role="user", content="bc")]
    assert script_text(7, 50, one) != script_text(7, 50, two)


def test_text_stays_the_same_between_releases() -> None:
    """Checkers outside this process recompute the text: changing it breaks every unfinished task."""
    assert script_text(7, 6) == GOLDEN


@given(cut=st.integers(min_value=0, max_value=2_000))
async def test_continues_at_any_cut(cut: int) -> None:
    whole = expected(3, 120)
    prefix = whole[:cut]
    got = await collect(ScriptedBackend(), script(seed=3, tokens=120), Prefix(text=prefix, count=1))
    assert not got.rewinds
    assert prefix + got.text == whole


async def test_prefix_of_another_text_starts_over() -> None:
    for foreign in ("something else", expected(4, 200), expected(3, 120) + "more"):
        got = await collect(ScriptedBackend(), script(seed=3, tokens=120), Prefix(text=foreign, count=5))
        assert got.rewinds == [0]
        assert got.text == expected(3, 120)


async def test_without_a_script_the_ordinary_settings_decide() -> None:
    assert (await collect(ScriptedBackend(), ask(PROMPT, seed=5, max_tokens=33))).text == expected(5, 33)
    assert (await collect(ScriptedBackend(), ask(PROMPT))).text == expected(0, 200)
    assert (await collect(ScriptedBackend(), script(tokens=0))).pieces == []


@pytest.mark.parametrize(("fail", "error"), [("transient", Transient), ("permanent", Permanent), (None, Transient)])
@pytest.mark.parametrize("at", [0, 20, 40])
async def test_fails_before_the_token_and_only_as_often_as_asked(
    fail: str | None, error: type[Exception], at: int
) -> None:
    asked = script(seed=1, tokens=40, fail=fail, fail_at=at, fail_times=2)
    seen: list[str] = []
    for failures in (0, 1):
        answer = Answer()
        with pytest.raises(error):
            await collect(ScriptedBackend(), asked, Prefix("".join(seen)), call(failures=failures), answer)
        seen.append(answer.text)
        assert "".join(seen) == expected(1, at)
    rest = await collect(ScriptedBackend(), asked, Prefix("".join(seen)), call(failures=2))
    assert "".join(seen) + rest.text == expected(1, 40)


async def test_hangs_without_blocking_the_loop_and_can_be_closed() -> None:
    stream = ScriptedBackend().generate(script(tokens=40, fail="hang", fail_at=2), Prefix(), call())
    await anext(stream)
    await anext(stream)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.1)
    await stream.aclose()


async def test_full_speed_leaves_room_for_others() -> None:
    rounds = 0

    async def other() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await collect(ScriptedBackend(), script(tokens=5_000))
    beside.cancel()
    assert rounds >= 90


def test_crash_kills_the_process(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from unbroken.tasks.inputs import *
from unbroken.tasks.kind import Prefix
from unbroken.worker.backends.base import Call
from unbroken.worker.backends.scripted import ScriptedBackend
async def main():
    ask = Generation(messages=[Message(role="user", content={PROMPT!r})],
                     scripted=Script(seed=1, tokens=40, fail="crash", fail_at=9))
    async for piece in ScriptedBackend(record={str(tmp_path)!r}).generate(ask, Prefix(), Call("t", "t-1")):
        sys.stdout.buffer.write(piece.text.encode()); sys.stdout.flush()
asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert ran.returncode == -signal.SIGKILL
    assert ran.stdout.decode() == expected(1, 9)
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 1


async def test_records_each_call_and_where_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBROKEN_SCRIPTED_RECORD", str(tmp_path / "record"))
    backend = ScriptedBackend()
    await collect(backend, script(seed=2, tokens=30))
    await collect(backend, script(seed=2, tokens=30), Prefix(expected(2, 12)), call(request_id="t-2.item-7"))
    lines = [json.loads(line) for line in (tmp_path / "record" / "calls.jsonl").read_text().splitlines()]
    assert [(line["request_id"], line["first"]) for line in lines] == [("t1-1", 0), ("t-2.item-7", 12)]


async def test_rewind_comes_before_any_text() -> None:
    stream = ScriptedBackend().generate(script(tokens=5), Prefix("no"), call())
    assert await anext(stream) == Rewind(0)
    await stream.aclose()
