"""A real nginx with the shipped files in front of two servers that the test commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.deploy.nginx import Nginx, self_signed
from tests.deploy.upstream import Upstream


@dataclass
class Front:
    """nginx, what stands behind it, and a client of it."""

    nginx: Nginx
    one: Upstream
    two: Upstream
    client: httpx.Client

    @property
    def calls(self) -> int:
        """How many calls reached any server."""
        return len(self.one.calls) + len(self.two.calls)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page's files, one of them large enough to be compressed."""
    folder = tmp_path / "static"
    (folder / "stream").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Unbroken</title>")
    (folder / "stream" / "fold.js").write_text("// fold\n" * 1_000)
    return folder


@pytest.fixture
def front(page: Path) -> Iterator[Front]:
    """nginx.conf, two servers, a client."""
    with (
        Upstream() as one,
        Upstream() as two,
        Nginx([one.port, two.port], static=page) as nginx,
        httpx.Client(base_url=nginx.url, timeout=20) as client,
    ):
        yield Front(nginx, one, two, client)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and its key, signed by itself."""
    return self_signed(tmp_path_factory.mktemp("tls"))
