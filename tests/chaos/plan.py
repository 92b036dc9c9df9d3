"""What a customer orders and does: drawn from the seed alone, together with the text that has to come out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from unbroken.tasks.inputs import BatchInput, Message, Step
from unbroken.worker.backends.scripted import script_text
from unbroken.worker.kinds.batch import question as item_question
from unbroken.worker.kinds.chain import heading, question


@dataclass
class Order:
    """One task and what its customer does with it. Times in seconds after the submit."""

    name: str
    kind: str
    body: dict[str, Any]
    text: str = ""
    """What a text or chain gives when it completes."""
    items: list[str] = field(default_factory=list)
    viewers: int = 1
    cuts: int = 0
    submits: int = 1
    """How often the same request is sent at once, with one key."""
    storms: list[tuple[float, str, int]] = field(default_factory=list)
    """(when, verb, how many calls at once)"""
    replays: bool = False

    @property
    def seed(self) -> int:
        """The scripted backend's."""
        return int(self.body["input"]["scripted"]["seed"])


def orders(seed: int, customer: int) -> Iterator[Order]:
    """The orders of one customer, without end."""
    number = 0
    while True:
        chance = random.Random(f"{seed}:{customer}:{number}")
        yield _order(chance, f"c{customer}-{number}")
        number += 1


def _order(chance: random.Random, name: str) -> Order:
    kind = chance.choices(["text", "batch", "chain"], [6, 2, 2])[0]
    script: dict[str, Any] = {"seed": chance.randrange(1 << 20), "rate": chance.choice([0, 40, 80, 150, 400])}
    body: dict[str, Any] = {
        "kind": kind,
        "priority": chance.choice(["high", "normal", "normal", "low"]),
        "recovery": chance.choices(["auto", "manual"], [5, 1])[0],
        "max_attempts": chance.choice([2, 3, 5]),
        "max_crashes": chance.choice([2, 3]),
        "sender": f"chaos-{name}",
    }
    order = Order(name, kind, body)
    if kind == "text":
        script["tokens"] = chance.choice([0, 1, 30, 150, 400, 600])
        if script["rate"] == 0 and chance.random() < 0.2:
            script["tokens"] = 20_000
        prompt = f"{name} asks about {chance.choice(['the sea', '灯台', 'naïve café', '🌊'])}"
        body["input"] = {"prompt": prompt, "scripted": script}
        order.text = script_text(script["seed"], script["tokens"], [Message(role="user", content=prompt)])
    elif kind == "batch":
        script["tokens"] = chance.choice([1, 20, 60])
        items = [f"item {n} of {name}" for n in range(chance.choice([1, 7, 25]))]
        body["input"] = {"instruction": "Say something about", "items": items, "scripted": script}
        given = BatchInput.model_validate(body["input"])
        calls = [item_question(given, n).messages for n in range(len(items))]
        order.items = [script_text(script["seed"], script["tokens"], messages) for messages in calls]
    else:
        script["tokens"] = chance.choice([10, 80])
        steps = [{"name": f"Part {n}", "prompt": f"write part {n}"} for n in range(chance.choice([1, 3, 6]))]
        body["input"] = {"steps": steps, "scripted": script}
        order.text = _chain(script, steps)
    _trouble(chance, order, script)
    _habits(chance, order)
    return order


def _chain(script: dict[str, Any], raw: list[dict[str, str]]) -> str:
    text = ""
    steps = [Step.model_validate(step) for step in raw]
    for n, step in enumerate(steps):
        asked = question(steps, n, text)
        text += heading(step, n == 0) + script_text(script["seed"], script["tokens"], asked)
    return text


def _trouble(chance: random.Random, order: Order, script: dict[str, Any]) -> None:
    """What goes wrong inside the task itself."""
    fault = chance.choices([None, "transient", "permanent", "crash"], [16, 4, 2, 1])[0]
    if fault is None or (order.kind == "batch" and fault == "permanent") or script["tokens"] == 0:
        return
    script |= {"fail": fault, "fail_at": chance.randrange(script["tokens"]), "fail_times": chance.choice([1, 1, 2])}


def _habits(chance: random.Random, order: Order) -> None:
    """What its customer does."""
    order.viewers = chance.choice([0, 1, 1, 2, 3])
    order.cuts = chance.choice([0, 3, 10])
    order.submits = chance.choice([1, 1, 3, 6])
    order.replays = chance.random() < 0.7
    for _ in range(chance.choice([0, 0, 1, 2, 3])):
        verb = chance.choices(["pause", "recover", "cancel"], [5, 4, 1])[0]
        order.storms.append((chance.uniform(0, 4), verb, chance.choice([1, 2, 8])))
    order.storms.sort()
