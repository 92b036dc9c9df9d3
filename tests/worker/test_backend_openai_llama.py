"""The openai backend against a real server: llama.cpp's /v1 with the real model."""

from __future__ import annotations

import pytest

from tests.support.backends import ask, collect
from tests.support.llama import Llama
from unbroken.tasks.errors import Permanent
from unbroken.tasks.kind import Prefix
from unbroken.worker.backends.continuing import Way
from unbroken.worker.backends.openai import OpenAIBackend

WAYS: list[Way] = ["prefill", "continue_final_message", "completion", "ask"]


@pytest.mark.parametrize("way", WAYS)
async def test_continues_without_repeating(llama: Llama, way: Way) -> None:
    backend = OpenAIBackend(llama.url, continue_by=way)
    asked = ask("Write a long story about a lighthouse keeper.", max_tokens=40, temperature=0)
    whole = await collect(backend, asked)
    assert whole.count > 20
    for cut in (31, len(whole.text) // 2):
        prefix = Prefix(whole.text[:cut], (), cut // 4)
        rest = await collect(backend, asked, prefix)
        assert not rest.rewinds
        assert rest.count <= 40 - cut // 4 + 1
        assert prefix.text not in rest.text, "the server's repetition got through"
        assert "<|im" not in rest.text
    await backend.close()


async def test_the_prefill_that_this_server_repeats_is_followed_by_new_text(llama: Llama) -> None:
    """At temperature 0 what follows is what would have followed."""
    backend = OpenAIBackend(llama.url)
    asked = ask("Write a long story about a lighthouse keeper.", max_tokens=40, temperature=0)
    whole = await collect(backend, asked)
    cut = whole.text.index(" ", 60)
    rest = await collect(backend, asked, Prefix(whole.text[:cut], (), 15))
    assert whole.text[cut : cut + 10] == rest.text[:10]
    await backend.close()


async def test_a_prompt_that_is_too_long_is_permanent(llama: Llama) -> None:
    backend = OpenAIBackend(llama.url)
    with pytest.raises(Permanent) as caught:
        await collect(backend, ask("word " * 5_000))
    assert caught.value.code == "context_length"
    await backend.close()
