"""Chains and batches that tests order, and what comes of them."""

from __future__ import annotations

from typing import Any

from unbroken.tasks.inputs import Message, Step
from unbroken.worker.backends.scripted import script_text
from unbroken.worker.kinds.chain import question

STEPS = [{"name": f"Part {i}", "prompt": f"write part {i}"} for i in range(4)]


def article(tokens: int) -> str:
    """What the chain makes of STEPS."""
    steps = [Step(**step) for step in STEPS]
    text = ""
    for i, step in enumerate(STEPS):
        so_far = text
        text += f"{'' if i == 0 else chr(10) * 2}## {step['name']}\n\n"
        text += script_text(3, tokens, question(steps, i, so_far))
    return text


def chain(tokens: int = 50, **script: Any) -> dict[str, Any]:
    """The input."""
    return {"steps": STEPS, "scripted": {"seed": 3, "tokens": tokens, **script}}


def batch(items: int, **script: Any) -> dict[str, Any]:
    """The input."""
    names = [f"item {i}" for i in range(items)]
    return {"instruction": "describe", "items": names, "scripted": {"seed": 5, "tokens": 30, **script}}


def result(index: int, tokens: int = 30) -> str:
    """What one item gives."""
    return script_text(5, tokens, [Message(role="user", content=f"describe\n\nitem {index}")])
