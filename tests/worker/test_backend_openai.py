"""The openai backend against a server that misbehaves."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from tests.support.backends import Answer, ask, call, collect
from tests.support.llama import free_port
from tests.support.upstream import Plan, Upstream, running_upstream
from unbroken.tasks.errors import Permanent, TaskError, Transient
from unbroken.tasks.kind import Prefix
from unbroken.worker.backends.continuing import ASK, Way
from unbroken.worker.backends.openai import OpenAIBackend

TEXT = (
    "The keeper climbed the stairs.\n\n  He lit the lamp – «naïve», 日本語 👩\u200d🚀🇳🇴\u2028and – waited\x0bfor fog.\n"
    "Nobody came that night; nobody came the next. Then a ship hooted: one, two, three."
)
WAYS: list[Way] = ["prefill", "continue_final_message", "completion", "ask"]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as running:
        yield running


@pytest.fixture
async def backend(upstream: Upstream) -> AsyncIterator[OpenAIBackend]:
    made = OpenAIBackend(upstream.url, model="m", api_key="sk-very-secret", idle_timeout_s=5)
    yield made
    await made.close()


def made(upstream: Upstream, **settings: Any) -> OpenAIBackend:
    return OpenAIBackend(upstream.url, model="m", **settings)


async def error_of(backend: OpenAIBackend, **settings: Any) -> TaskError:
    with pytest.raises(TaskError) as caught:
        await collect(backend, ask("Hi"), **settings)
    return caught.value


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 17, None])
@pytest.mark.parametrize("escape", [True, False])
async def test_text_is_exact_however_the_bytes_are_split(
    upstream: Upstream, backend: OpenAIBackend, cut: int | None, escape: bool
) -> None:
    upstream.answer(Plan(TEXT, cut=cut, escape=escape))
    got = await collect(backend, ask("Hi"))
    assert got.text == TEXT
    assert got.count == len(got.pieces)


async def test_halves_of_emoji_in_two_events(upstream: Upstream, backend: OpenAIBackend) -> None:
    upstream.answer(Plan(TEXT, units=True))
    assert (await collect(backend, ask("Hi"))).text == TEXT


async def test_what_goes_upstream(upstream: Upstream, backend: OpenAIBackend) -> None:
    upstream.answer(Plan())
    asked = ask("Hi", system="Be brief.", max_tokens=9, temperature=0.5, seed=3, stop=["x"])
    await collect(backend, asked, who=call("t", "t-1.item-7"))
    seen = upstream.seen[0]
    assert seen.headers["x-request-id"] == "t-1.item-7"
    assert seen.headers["authorization"] == "Bearer sk-very-secret"
    assert seen.path == "/v1/chat/completions"
    assert seen.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "seed": 3,
        "stop": ["x"],
        "stream": True,
    }


async def test_without_a_model_the_first_listed_is_used(upstream: Upstream) -> None:
    upstream.answer(Plan())
    backend = OpenAIBackend(upstream.url)
    await collect(backend, ask("Hi"))
    await collect(backend, ask("Hi", model="mine"))
    assert [seen.body["model"] for seen in upstream.seen] == ["listed", "mine"]
    await backend.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("echo", ["none", "all", 40])
async def test_continues_at_every_cut(upstream: Upstream, way: Way, echo: Any) -> None:
    """TRAPS 49, 50, 53: inside words, behind white space, inside emoji, with servers that repeat."""
    backend = made(upstream, continue_by=way)
    upstream.answer(Plan(TEXT, size=4, echo=echo))
    # A short prefix repeated as its last 40 characters is one repeated as a whole; four characters are the
    # least.
    for cut in range(0 if echo == "none" else 5, len(TEXT) + 1, 1 if way == "prefill" else 7):
        got = await collect(backend, ask("Hi"), Prefix(TEXT[:cut], (), cut // 4))
        assert not got.rewinds
        assert TEXT[:cut] + got.text == TEXT, f"cut at {cut}"
    await backend.close()


async def test_how_each_way_asks(upstream: Upstream) -> None:
    bodies = {}
    for way in WAYS:
        upstream.answer(Plan(TEXT))
        backend = made(upstream, continue_by=way)
        await collect(backend, ask("Hi", max_tokens=50), Prefix(TEXT[:31], (), 10))
        await backend.close()
        bodies[way] = upstream.seen[0].body
        assert bodies[way]["max_tokens"] == 40
    user, begun = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": TEXT[:30]}
    assert bodies["prefill"]["messages"] == [user, begun]
    assert bodies["continue_final_message"]["messages"] == [user, begun]
    assert bodies["continue_final_message"]["continue_final_message"] is True
    assert bodies["continue_final_message"]["add_generation_prompt"] is False
    assert bodies["ask"]["messages"] == [user, begun, {"role": "user", "content": ASK}]
    assert bodies["completion"]["prompt"].endswith("<|im_start|>assistant\n" + TEXT[:30])
    assert bodies["completion"]["stop"] == ["<|im_end|>"]


async def test_refused_prefill_leads_to_a_user_turn(upstream: Upstream, backend: OpenAIBackend) -> None:
    """TRAPS 51."""
    upstream.answer(Plan(TEXT, refuse_prefill=True, echo=40))
    for _ in range(2):
        got = await collect(backend, ask("Hi"), Prefix(TEXT[:60], (), 15))
        assert not got.rewinds
        assert TEXT[:60] + got.text == TEXT
    roles = [[turn["role"] for turn in seen.body["messages"]] for seen in upstream.seen]
    asked = ["user", "assistant", "user"]
    assert roles == [["user", "assistant"], asked, asked], "the refusal is remembered"


async def test_where_nothing_else_is_possible_it_starts_over(upstream: Upstream, backend: OpenAIBackend) -> None:
    refused = Plan(status=400, error={"error": {"message": "no"}})
    upstream.answer(refused, refused, Plan(TEXT))
    got = await collect(backend, ask("Hi", max_tokens=50), Prefix("Other text", (), 15))
    assert (got.rewinds, got.text) == ([0], TEXT)
    assert upstream.seen[-1].body["max_tokens"] == 50


async def test_restart_rewinds_only_when_there_is_new_text(upstream: Upstream) -> None:
    backend = made(upstream, continue_by="restart")
    upstream.answer(Plan(status=503), Plan(TEXT, after=0, end="cut"), Plan(TEXT))
    for _ in range(2):
        answer = Answer()
        with pytest.raises(Transient):
            await collect(backend, ask("Hi"), Prefix("One", (), 1), into=answer)
        assert answer.rewinds == []
    got = await collect(backend, ask("Hi"), Prefix("One", (), 1))
    assert (got.rewinds, got.text) == ([0], TEXT)
    await backend.close()


async def test_a_full_budget_asks_nobody(upstream: Upstream, backend: OpenAIBackend) -> None:
    upstream.answer(Plan())
    assert (await collect(backend, ask("Hi", max_tokens=5), Prefix("One", (), 5))).pieces == []
    assert upstream.seen == []


@pytest.mark.parametrize("end", ["finish", "done", "both"])
async def test_either_end_marker_ends(upstream: Upstream, backend: OpenAIBackend, end: Any) -> None:
    upstream.answer(Plan(TEXT, end=end))
    assert (await collect(backend, ask("Hi"))).text == TEXT


@pytest.mark.parametrize(("end", "code"), [("cut", "upstream_ended_early"), ("reset", "upstream_reset")])
async def test_an_end_without_marker_is_transient_and_keeps_the_text(
    upstream: Upstream, backend: OpenAIBackend, end: Any, code: str
) -> None:
    """TRAPS 55."""
    upstream.answer(Plan(TEXT, end=end, after=10), Plan(TEXT))
    answer = Answer()
    with pytest.raises(Transient) as caught:
        await collect(backend, ask("Hi"), into=answer)
    assert caught.value.code == code
    assert answer.text == TEXT[:30]
    rest = await collect(backend, ask("Hi"), Prefix(answer.text, (), answer.count))
    assert answer.text + rest.text == TEXT


STATUSES: list[tuple[int, dict[str, Any], type[TaskError], str]] = [
    (429, {}, Transient, "rate_limited"),
    (429, {"code": "insufficient_quota"}, Permanent, "quota"),
    (408, {}, Transient, "upstream_timeout"),
    (409, {}, Transient, "upstream_conflict"),
    (500, {}, Transient, "upstream_error"),
    (503, {}, Transient, "upstream_error"),
    (529, {"type": "overloaded_error"}, Transient, "upstream_error"),
    (400, {"message": "error 503 in field"}, Permanent, "bad_request"),
    (400, {"code": "context_length_exceeded"}, Permanent, "context_length"),
    (400, {"code": 400, "type": "exceed_context_size_error"}, Permanent, "context_length"),
    (400, {"code": "content_filter"}, Permanent, "content_filter"),
    (401, {}, Permanent, "unauthorized"),
    (403, {}, Permanent, "forbidden"),
    (404, {"code": "model_not_found"}, Permanent, "not_found"),
    (422, {}, Permanent, "bad_request"),
]


@pytest.mark.parametrize(("status", "body", "kind", "code"), STATUSES)
async def test_statuses(
    upstream: Upstream, backend: OpenAIBackend, status: int, body: dict[str, Any], kind: type[TaskError], code: str
) -> None:
    upstream.answer(Plan(status=status, error={"error": body}))
    error = await error_of(backend)
    assert (type(error), error.code) == (kind, code)
    assert len(upstream.seen) == 1, "the SDK must not retry by itself"


async def test_a_full_context_is_not_tried_another_way(upstream: Upstream, backend: OpenAIBackend) -> None:
    upstream.answer(Plan(status=400, error={"error": {"code": "context_length_exceeded"}}))
    assert (await error_of(backend, prefix=Prefix("One two", (), 2))).code == "context_length"
    assert len(upstream.seen) == 1


async def test_errors_that_are_not_json(upstream: Upstream, backend: OpenAIBackend) -> None:
    upstream.answer(Plan(status=502, error="<html>bad gateway</html>"))
    assert isinstance(await error_of(backend), Transient)


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25, 0.25),
        ({"retry-after": "999999"}, 3_600, 3_600),
        ({"retry-after": "-5"}, 0, 0),
    ],
)
async def test_retry_after(
    upstream: Upstream, backend: OpenAIBackend, headers: dict[str, str], low: float, high: float
) -> None:
    upstream.answer(Plan(status=429, headers=headers, error={"error": {}}))
    wait = (await error_of(backend)).retry_after_s
    assert wait is not None
    assert low <= wait <= high


async def test_retry_after_a_date(upstream: Upstream, backend: OpenAIBackend) -> None:
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    upstream.answer(Plan(status=429, headers={"retry-after": date}, error={"error": {}}))
    wait = (await error_of(backend)).retry_after_s
    assert wait is not None
    assert 60 <= wait <= 101


@pytest.mark.parametrize("raw", ["soon", "nan", "inf"])
async def test_a_retry_after_that_makes_no_sense_is_ignored(
    upstream: Upstream, backend: OpenAIBackend, raw: str
) -> None:
    upstream.answer(Plan(status=429, headers={"retry-after": raw}, error={"error": {}}))
    assert (await error_of(backend)).retry_after_s is None


async def test_the_key_does_not_get_into_errors(upstream: Upstream, backend: OpenAIBackend) -> None:
    upstream.answer(Plan(status=401, error={"error": {"message": "bad key sk-very-secret"}}))
    error = await error_of(backend)
    assert "sk-very-secret" not in f"{error} {error.detail}"


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        ({"message": "overloaded", "type": "server_error"}, Transient),
        ({"message": "x", "code": 429}, Transient),
        ({"message": "x", "code": 400}, Permanent),
        ({"message": "x", "type": "invalid_request_error"}, Permanent),
        ("just words", Transient),
    ],
)
async def test_errors_inside_the_stream(
    upstream: Upstream, backend: OpenAIBackend, inside: Any, kind: type[TaskError]
) -> None:
    upstream.answer(Plan(before=("data: " + json.dumps({"error": inside}),)))
    assert type(await error_of(backend)) is kind


async def test_refusals_are_permanent(upstream: Upstream, backend: OpenAIBackend) -> None:
    upstream.answer(Plan(TEXT, finish="content_filter"))
    assert (await error_of(backend)).code == "content_filter"
    refusal = {"choices": [{"delta": {"refusal": "I will not."}}]}
    upstream.answer(Plan(before=("data: " + json.dumps(refusal),)))
    assert isinstance(await error_of(backend), Permanent)


async def test_lines_that_are_no_parts_do_no_harm(upstream: Upstream, backend: OpenAIBackend) -> None:
    usage = "data: " + json.dumps({"choices": [], "usage": {"total_tokens": 4}})
    upstream.answer(Plan(TEXT, before=(": ping", "event: ping\ndata: {}", usage, "data: null", "retry: 3")))
    assert (await collect(backend, ask("Hi"))).text == TEXT
    upstream.answer(Plan(TEXT, before=("data: {broken",)))
    assert (await error_of(backend)).code == "upstream_garbled"


async def test_time_outs(upstream: Upstream) -> None:
    backend = made(upstream, first_token_timeout_s=0.3, idle_timeout_s=30)
    upstream.answer(Plan(TEXT, end="hang", after=0))
    assert (await error_of(backend)).code == "upstream_timeout"
    await backend.close()
    backend = made(upstream, first_token_timeout_s=30, idle_timeout_s=0.3)
    upstream.answer(Plan(TEXT, end="hang", after=4))
    answer = Answer()
    assert (await error_of(backend, into=answer)).code == "upstream_timeout"
    assert answer.text == TEXT[:12]
    await backend.close()


async def test_nobody_there_is_transient() -> None:
    backend = OpenAIBackend(f"http://127.0.0.1:{free_port()}/v1", model="m", connect_timeout_s=2)
    assert isinstance(await error_of(backend), Transient)
    await backend.close()


async def test_a_bad_address_is_said_at_the_start() -> None:
    backend = OpenAIBackend("localhost:8000", model="m")
    with pytest.raises(Permanent, match="UNBROKEN_BACKEND_URL"):
        await backend.start()
    await backend.close()


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_stopping_closes_the_upstream_connection(upstream: Upstream, backend: OpenAIBackend, how: str) -> None:
    """TRAPS 62."""
    upstream.answer(Plan(TEXT, end="hang", after=3))
    stream = backend.generate(ask("Hi"), Prefix(), call())
    for _ in range(3):
        await anext(stream)
    if how == "close":
        await stream.aclose()
    else:

        async def wait_for_more() -> None:
            async with aclosing(stream):
                await anext(stream)

        waiting = asyncio.create_task(wait_for_more())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert await asyncio.to_thread(upstream.seen[0].gone.wait, 10)


async def test_another_name_for_the_limit(upstream: Upstream, backend: OpenAIBackend) -> None:
    wrong = {"code": "unsupported_parameter", "param": "max_tokens", "message": "use max_completion_tokens"}
    upstream.answer(Plan(status=400, error={"error": wrong}), Plan(TEXT))
    assert (await collect(backend, ask("Hi", max_tokens=9))).text == TEXT
    assert upstream.seen[-1].body["max_completion_tokens"] == 9
    assert "max_tokens" not in upstream.seen[-1].body
