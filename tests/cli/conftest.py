"""A server without workers, and a terminal."""

from __future__ import annotations

import pytest

from tests.cli.desk import Terminal
from tests.server.conftest import desk, settings, site
from tests.server.site import Site
from unbroken.tasks.settings import Settings

__all__ = ["desk", "settings", "site"]


@pytest.fixture
def terminal(
    site: Site, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    """The command line, told where the server and its Redis are."""
    monkeypatch.setenv("UNBROKEN_URL", site.url)
    monkeypatch.setenv("UNBROKEN_REDIS_URL", settings.redis_url)
    monkeypatch.setenv("UNBROKEN_DATA_DIR", str(settings.data_dir))
    return Terminal(site, capsys)
