"""The sources of tokens, and which one a setting names."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from unbroken.worker.backends.base import Backend, Call
from unbroken.worker.backends.continuing import Way

__all__ = ["Backend", "BackendSettings", "Call", "make_backend"]


class BackendSettings(Protocol):
    """The settings that choose and shape a backend; times in seconds."""

    @property
    def backend(self) -> str: ...
    @property
    def backend_url(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def api_key(self) -> SecretStr | None: ...
    @property
    def local_url(self) -> str: ...
    @property
    def slot_dir(self) -> Path | None: ...
    @property
    def continue_by(self) -> Way: ...
    @property
    def connect_timeout_s(self) -> float: ...
    @property
    def first_token_timeout_s(self) -> float: ...
    @property
    def idle_timeout_s(self) -> float: ...
    @property
    def default_max_tokens(self) -> int: ...


def make_backend(settings: BackendSettings) -> Backend:
    """The backend called `settings.backend`. Raises ValueError for a name that does not exist.

    Each is imported only when it is wanted: the `openai` package alone takes over a second, which every
    start of a worker and of the local model would otherwise pay."""
    if settings.backend == "scripted":
        from unbroken.worker.backends.scripted import ScriptedBackend

        return ScriptedBackend()
    if settings.backend == "local":
        from unbroken.worker.backends.local import LocalBackend

        return LocalBackend(
            settings.local_url,
            slot_dir=settings.slot_dir,
            connect_timeout_s=settings.connect_timeout_s,
            first_token_timeout_s=settings.first_token_timeout_s,
            max_tokens=settings.default_max_tokens,
        )
    if settings.backend == "openai":
        from unbroken.worker.backends.openai import OpenAIBackend

        return OpenAIBackend(
            settings.backend_url,
            model=settings.model,
            api_key=settings.api_key.get_secret_value() if settings.api_key else None,
            continue_by=settings.continue_by,
            connect_timeout_s=settings.connect_timeout_s,
            first_token_timeout_s=settings.first_token_timeout_s,
            idle_timeout_s=settings.idle_timeout_s,
            max_tokens=settings.default_max_tokens,
        )
    raise ValueError(f"there is no backend {settings.backend!r}: use local, openai or scripted")
