"""The variant with TLS and HTTP/2."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.deploy.nginx import SHIPPED, Nginx
from tests.deploy.upstream import Upstream

Certificate = tuple[Path, Path]


@pytest.fixture
def up() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


@pytest.fixture
def nginx(up: Upstream, page: Path, certificate: Certificate) -> Iterator[Nginx]:
    with Nginx([up.port], static=page, certificate=certificate) as running:
        yield running


@pytest.fixture
def client(nginx: Nginx, certificate: Certificate) -> Iterator[httpx.Client]:
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    with httpx.Client(base_url=nginx.url, verify=trust, timeout=20) as made:
        yield made


def handshake(nginx: Nginx, certificate: Certificate, version: ssl.TLSVersion, offer: list[str]) -> str | None:
    """The protocol that client and server agree on for this version of TLS."""
    context = ssl.create_default_context(cafile=str(certificate[0]))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(offer)
    with (
        socket.create_connection(("127.0.0.1", nginx.tls_port), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as talk,
    ):
        return talk.selected_alpn_protocol()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_browsers_get_http_2(nginx: Nginx, certificate: Certificate, version: ssl.TLSVersion) -> None:
    assert handshake(nginx, certificate, version, ["h2", "http/1.1"]) == "h2"
    assert handshake(nginx, certificate, version, ["http/1.1"]) == "http/1.1"


def test_a_stream_is_not_held_back_by_tls(client: httpx.Client, up: Upstream) -> None:
    with client.stream("GET", "/api/tasks/abc/stream") as answer:
        arriving = answer.iter_raw()
        for n in range(1, 10):
            piece = b"id: 1-%d\ndata: {}\n\n" % n
            up.behaviour.stream.put(piece)
            got = b""
            while len(got) < len(piece):
                got += next(arriving)
            assert got == piece
        up.behaviour.stream.put(None)
        assert b"".join(arriving) == b""


def test_browsers_are_told_to_stay_with_tls(client: httpx.Client, nginx: Nginx) -> None:
    for path in ("/", "/api/tasks", "/static/none.js"):
        assert client.get(path).headers["strict-transport-security"].startswith("max-age=")
    plain = httpx.get(f"http://127.0.0.1:{nginx.port}/api/tasks?state=paused")
    assert plain.status_code == 308
    assert plain.headers["location"] == "https://127.0.0.1/api/tasks?state=paused"
    assert httpx.get(f"http://127.0.0.1:{nginx.port}/healthz").status_code == 200


def test_the_servers_know_that_it_was_tls(client: httpx.Client, nginx: Nginx) -> None:
    told = client.get("/api/tasks").json()["headers"]
    assert told["x-forwarded-proto"] == "https"
    assert told["host"] == f"localhost:{nginx.tls_port}"


def test_both_variants_begin_alike() -> None:
    def directives(name: str) -> list[str]:
        head, _, _ = (SHIPPED / name).read_text().partition("http {")
        return [line.strip() for line in re.sub(r"#.*", "", head).splitlines() if line.strip()]

    assert directives("nginx.conf") == directives("tls.conf")
