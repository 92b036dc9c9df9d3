"""What rendering a text may cost: cells of tables, turns, a queue (G4)."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest

from tests.server.asking import problem
from tests.server.author import begin
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.server import rendering
from unbroken.server.problems import Problem

HOSTILE = {
    "wide": "|a" * 2_000 + "\n" + "|-" * 2_000 + "\n" + "|\n" * 500,
    "long": "|a|b\n|-|-\n" + "|\n" * 15_000,
    "many": ("|a" * 50 + "\n" + "|-" * 50 + "\n" + "|\n" * 50 + "\n") * 20,
    "in quotes": ("> " + "|a" * 50 + "\n> " + "|-" * 50 + "\n" + "> |\n" * 50 + "\n") * 12,
    "after each other": "a|b\n-|-\n" * 6_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_tables_are_bounded(what: str) -> None:
    html = rendering.to_html(HOSTILE[what])
    assert html.count("<td") + html.count("<th>") <= rendering.CELLS_MAX


def test_ordinary_tables_are_tables() -> None:
    row = "|" + "|".join(f" column {at} " for at in range(12)) + "|\n"
    text = (row + "|-" * 12 + "|\n" + row * 100 + "\nbetween\n\n") * 10
    html = rendering.to_html(text)
    assert html.count("<table>") == 10
    assert html.count("<td>") == 12 * 100 * 10
    small = "para\n| a | b |\n|:-|-:|\n| 1 |\n\nafter"
    assert rendering.to_html(small).count("<td") == 2
    assert "<p>after</p>" in rendering.to_html(small)


async def test_one_at_a_time_and_owners_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, order = [0], [0], []
    lock, all_are_there = threading.Lock(), threading.Event()

    def slow(text: str) -> str:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        assert all_are_there.wait(20), "the first takes until all have asked"
        with lock:
            running[0] -= 1
            order.append(text)
        return text

    monkeypatch.setattr(rendering, "to_html", slow)
    renderer = rendering.Renderer()

    async def ask(owner: str) -> None:
        async def text() -> str:
            return owner

        assert await renderer.html(owner, text) == owner

    crowd = [asyncio.create_task(ask("eve")) for _ in range(10)]
    await until(lambda: running[0], "the first to begin")
    alice = asyncio.create_task(ask("alice"))
    await asyncio.sleep(0)  # she stands in the queue
    all_are_there.set()
    await asyncio.gather(alice, *crowd)
    assert most[0] == 1
    assert order.index("alice") == 1, "right behind the one that ran, before the rest of the crowd"


async def test_who_asks_for_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer, go = rendering.Renderer(), asyncio.Event()

    async def text() -> str:
        await go.wait()
        return "x"

    waiting = [asyncio.create_task(renderer.html("eve", text)) for _ in range(rendering.WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(Problem) as refused:
        await renderer.html("eve", text)
    assert refused.value.status == 429
    other = asyncio.create_task(renderer.html("alice", text))
    waiting[-1].cancel()
    go.set()
    assert await other == "<p>x</p>\n"
    assert await asyncio.gather(*waiting[:-1]) == ["<p>x</p>\n"] * (rendering.WAITING_MAX - 1)
    assert await renderer.html("eve", text) == "<p>x</p>\n"


async def test_a_task_that_is_gone_holds_up_nobody(client: httpx.AsyncClient, desk: Desk) -> None:
    author = await begin(desk)
    await author.write("**text**")
    problem(await client.get("/api/tasks/s0-00000000000000000000000000/rendered"), 404)
    answers = await asyncio.gather(*(client.get(f"/api/tasks/{author.task.id}/rendered") for _ in range(8)))
    assert {answer.text for answer in answers} == {"<p><strong>text</strong></p>\n"}
