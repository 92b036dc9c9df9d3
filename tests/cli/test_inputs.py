"""What people type becomes the input that the API wants."""

from __future__ import annotations

from typing import Any

import pytest

from unbroken.cli.inputs import BadInput, build, items, steps


@pytest.mark.parametrize(
    ("kind", "prompt", "file", "extra", "made"),
    [
        ("text", "Hi", None, {}, {"prompt": "Hi"}),
        ("text", None, "From a file\n", {"seed": 1}, {"prompt": "From a file\n", "seed": 1}),
        ("text", "Summarise:", "Long.", {}, {"prompt": "Summarise:\n\nLong."}),
        ("batch", "Translate:", "a\n\nb\r\n", {}, {"instruction": "Translate:", "items": ["a", "b"]}),
        ("chain", None, "# One\nDo it.\n", {}, {"steps": [{"name": "One", "prompt": "Do it."}]}),
        ("primes", None, '{"upto": 10}', {}, {"upto": 10}),
        ("primes", None, None, {"upto": 10}, {"upto": 10}),
    ],
)
def test_inputs(kind: str, prompt: str | None, file: str | None, extra: dict[str, Any], made: object) -> None:
    assert build(kind, prompt, file, extra) == made


@pytest.mark.parametrize(
    ("kind", "prompt", "file", "says"),
    [
        ("text", None, None, "give a prompt"),
        ("batch", None, "a", "needs an instruction"),
        ("batch", "x", None, "needs its items"),
        ("batch", "x", "\n\n", "no items"),
        ("chain", None, None, "needs its steps"),
        ("chain", None, "words without a heading", "begin with a heading"),
        ("primes", None, "[]", "JSON object"),
    ],
)
def test_what_is_missing_is_said(kind: str, prompt: str | None, file: str | None, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        build(kind, prompt, file, {})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('["a", "b\\nc"]', ["a", "b\nc"]),
        ('"a"\n{"text": "b"}\n{"item": "c"}\n', ["a", "b", "c"]),
        ("\ufeffone\ntwo", ["one", "two"]),
        ('"quoted" start, but no JSON\nand so on', ['"quoted" start, but no JSON', "and so on"]),
        ("[1] a footnote\n[2] another", ["[1] a footnote", "[2] another"]),
    ],
)
def test_items(text: str, found: list[str]) -> None:
    assert items(text) == found


def test_steps_in_markdown_keep_their_code() -> None:
    text = "# Plan\nThink.\n\n## Write ##\n```\n# not a heading\n```\nDone.\n### Name only\n"
    assert steps(text) == [
        {"name": "Plan", "prompt": "Think."},
        {"name": "Write", "prompt": "```\n# not a heading\n```\nDone."},
        {"name": "Name only", "prompt": "Name only"},
    ]


def test_steps_in_json() -> None:
    assert steps('{"steps": ["a", {"name": "B", "prompt": "b"}]}') == [
        {"name": "step 1", "prompt": "a"},
        {"name": "B", "prompt": "b"},
    ]


def test_a_typing_error_in_a_step_is_said() -> None:
    with pytest.raises(BadInput, match="step 1"):
        steps('[{"name": "a", "promt": "b"}]')
