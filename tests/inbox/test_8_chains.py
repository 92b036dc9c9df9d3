"""Chains: step by step, each seeing the text so far; who dies inside a step goes on inside that step."""

from __future__ import annotations

import json

import pytest

from tests.inbox.office import Office, Record
from tests.support.viewer import Viewer
from unbroken.tasks.inputs import Message
from unbroken.worker.backends.scripted import script_text

STEPS = ["Outline", "Middle", "End"]
TOKENS = 60


def expected() -> str:
    """What the chain writes when nothing disturbs it: headings, and each step's answer to what stands above."""
    text = ""
    for name in STEPS:
        now = Message(role="user", content=f"Write: {name}")
        first = Message(role="user", content=f"Write: {STEPS[0]}")
        messages = [first, Message(role="assistant", content=text), now] if text else [now]
        text += ("\n\n" if text else "") + f"## {name}\n\n" + script_text(5, TOKENS, messages)
    return text


@pytest.mark.office(workers=1, lease_s=1)
async def test_a_chain_killed_in_its_second_step(office: Office, record: Record) -> None:
    steps = [{"name": name, "prompt": f"Write: {name}"} for name in STEPS]
    data = {"steps": steps, "scripted": {"seed": 5, "tokens": TOKENS, "rate": 60}}
    task_id = (await office.api.submit(data, kind="chain"))["task_id"]
    await office.api.until_length(task_id, int(len(expected()) * 0.5))
    office.stack.kill_workers()
    await office.stack.start_worker()
    viewer = await Viewer(office.stack.url, task_id).follow()
    viewer.check()
    assert viewer.text == expected()
    assert viewer.rewinds == 0, "nothing that was shown is taken back"
    task = await office.api.task(task_id)
    assert (task["done"], task["total"], task["unit"], task["attempts"]) == (3, 3, "steps", 2)

    calls = [json.loads(line) for line in (record.folder / "calls.jsonl").read_text().splitlines()]
    made = [(call["attempt"], call["request_id"].rpartition("-step-")[2], call["first"] > 0) for call in calls]
    assert made == [(1, "0", False), (1, "1", False), (2, "1", True), (2, "2", False)]
    names = [name for _, name, _ in await office.store.events(task_id, "0-0", count=10_000)]
    assert names.count("checkpoint") >= 3, "one after every step at least"
