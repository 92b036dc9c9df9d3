"""Settings choose the backend."""

from __future__ import annotations

from typing import Any

import pytest

from unbroken.tasks.settings import Settings
from unbroken.worker.backends import make_backend


@pytest.mark.parametrize("name", ["local", "openai", "scripted"])
async def test_each_name_makes_its_backend(name: Any) -> None:
    backend = make_backend(Settings(backend=name))
    assert backend.name == name
    await backend.close()


def test_a_name_that_does_not_exist_is_said() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        make_backend(Settings.model_construct(backend="nonsense"))
