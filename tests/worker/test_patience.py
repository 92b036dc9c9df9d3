"""A model server that is away is waited for inside the run: it costs no try, and every stop ends the waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from tests.support.desk import OWNER
from tests.support.llama import free_port
from tests.support.upstream import Plan, running_upstream
from tests.support.wait import until
from tests.worker.crew import Crew
from unbroken.tasks.errors import Unreached
from unbroken.tasks.inputs import Generation, Message
from unbroken.tasks.kind import Checkpoint, Kind, Run, Text, Update
from unbroken.worker import patience
from unbroken.worker.backends.llama_client import LlamaClient
from unbroken.worker.backends.openai import OpenAIBackend
from unbroken.worker.backends.openai_errors import classify

GONE = "cannot be reached"
BACK = "answers again"


class Lines(logging.Handler):
    """What the log said about a model that is away."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.said.append(record.getMessage())

    def count(self, words: str) -> int:
        """How many lines have these words."""
        return sum(words in line for line in self.said)


@pytest.fixture
def lines() -> Iterator[Lines]:
    """From the beginning of the test on."""
    handler = Lines()
    patience.log.addHandler(handler)
    yield handler
    patience.log.removeHandler(handler)


def away(port: int) -> OpenAIBackend:
    """A backend whose server is not there (yet)."""
    return OpenAIBackend(f"http://127.0.0.1:{port}/v1", model="m", connect_timeout_s=1)


async def test_a_restarting_model_costs_no_try(crew: Crew, lines: Lines) -> None:
    port = free_port()
    tasks = [await crew.submit("text", {"prompt": f"Hi {n}"}) for n in range(3)]
    async with crew.working(backend=away(port), concurrency=3):
        await until(lambda: lines.count(GONE), "the worker to wait")
        # longer than a lease: the heartbeat holds it meanwhile
        await until(lambda: asyncio.sleep(crew.settings.lease_s * 1.5, True), "more than a lease to pass")
        with running_upstream(port) as upstream:
            upstream.answer(Plan("One two three."))
            for task_id in tasks:
                task = await crew.reach(task_id, "completed", "failed")
                assert (task.state, task.num("errors"), task.num("attempts")) == ("completed", 0, 1)
                await crew.check_text(task_id, "One two three.")
    assert (lines.count(GONE), lines.count(BACK)) == (1, 1), "one line for the outage, however many tries and tasks"


async def test_the_patience_ends_and_then_it_is_an_error(crew: Crew) -> None:
    task_id = await crew.submit("text", {"prompt": "Hi"}, max_attempts=2)
    async with crew.working(backend=away(free_port()), model_patience_s=0.3):
        task = await crew.reach(task_id, "failed")
    assert (task.num("errors"), task.num("attempts")) == (2, 2)
    assert task.error is not None
    assert task.error["code"] == "upstream_unreachable"
    assert "ConnectError" in task.text("detail")


async def test_no_patience_at_all(crew: Crew, lines: Lines) -> None:
    task_id = await crew.submit("text", {"prompt": "Hi"}, max_attempts=1)
    async with crew.working(backend=away(free_port()), model_patience_s=0):
        await crew.reach(task_id, "failed")
    assert lines.said == []


class Letters(Kind):
    """Continues from its state, and asks a model first."""

    name = "letters"

    async def run(self, run: Run) -> AsyncIterator[Update]:
        """One call."""
        yield Text("begun ")
        async for piece in run.generate(Generation(messages=[Message(role="user", content="x")])):
            yield Text(getattr(piece, "text", ""))
        yield Checkpoint({})


@pytest.mark.parametrize("kind", ["text", "letters"])
async def test_a_pause_ends_the_waiting(crew: Crew, lines: Lines, kind: str) -> None:
    crew.kinds["letters"] = Letters()
    task_id = await crew.submit(kind, {"prompt": "Hi"} if kind == "text" else {})
    async with crew.working(backend=away(free_port()), drain_s=120, model_patience_s=600):
        await until(lambda: lines.count(GONE), "the worker to wait")
        await crew.store.pause(task_id, OWNER, actor="me")
        task = await crew.reach(task_id, "paused", within=20)  # far below the grace that a kind has otherwise
        assert task.text("reason") == "requested"
        assert task.num("errors") == 0


async def test_a_cancel_ends_the_waiting(crew: Crew, lines: Lines) -> None:
    task_id = await crew.submit("text", {"prompt": "Hi"})
    async with crew.working(backend=away(free_port()), model_patience_s=600) as worker:
        await until(lambda: lines.count(GONE), "the worker to wait")
        await crew.store.cancel(task_id, OWNER, actor="me")
        await until(lambda: not worker.running, "the run to end", within=20)
    assert await crew.state(task_id) == "cancelled"


async def test_a_shutdown_ends_the_waiting_and_costs_nothing(crew: Crew, lines: Lines) -> None:
    crew.kinds["letters"] = Letters()
    tasks = [await crew.submit("text", {"prompt": "Hi"}), await crew.submit("letters", {})]
    async with asyncio.timeout(40):
        async with crew.working(backend=away(free_port()), drain_s=120, model_patience_s=600):
            for task_id in tasks:
                await crew.reach(task_id, "processing")
            await until(lambda: lines.count(GONE), "the worker to wait")
    for task_id in tasks:
        task = await crew.look(task_id)
        assert (task.state, task.num("errors")) == ("recovering", 0)


async def test_a_batch_is_not_used_up_while_the_model_is_away(crew: Crew) -> None:
    task_id = await crew.submit("batch", {"instruction": "x", "items": ["a", "b", "c"]}, max_attempts=1)
    async with crew.working(backend=away(free_port()), model_patience_s=0.2):
        await crew.reach(task_id, "failed")
        assert await crew.store.items(task_id) == {}, "no item has failed: none was asked about"


async def test_what_counts_as_unreached() -> None:
    """Refused and unknown names do, for both clients; whatever came after a connection does not."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unreached):
        await LlamaClient(nowhere).about()
    for url in (nowhere, "http://nothing.invalid"):
        async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
            with pytest.raises(openai.APIConnectionError) as caught:
                await client.models.list()
        assert isinstance(classify(caught.value), Unreached)
    assert not isinstance(classify(TimeoutError()), Unreached)
    assert not isinstance(classify(ConnectionResetError()), Unreached)
