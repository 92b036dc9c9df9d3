"""compose.yaml and Dockerfile as documents: valid, hardened, and of one mind with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from starlette.applications import Starlette

from tests.deploy.compose import COMPOSE, COMPOSE_TLS, ROOT, NotSet, Service, load, services, variables
from tests.deploy.dockerfile import stages
from unbroken.server.main import config
from unbroken.tasks.settings import Settings

GIVEN = {
    "VALKEY_PASSWORD": "long-random-word",
    "UNBROKEN_BACKEND_URL": "http://model:8000/v1",
    "UNBROKEN_MODEL": "a-model",
    "TLS_CERTIFICATE": "/etc/tls/certificate.pem",
    "TLS_KEY": "/etc/tls/key.pem",
}
PLAIN = load(COMPOSE, given=GIVEN)
TLS = load(COMPOSE, COMPOSE_TLS, given=GIVEN)
SERVICES = services(PLAIN)
APP = [service for name, service in SERVICES.items() if name.startswith(("server", "worker"))]
each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
each_app = pytest.mark.parametrize("service", APP, ids=lambda service: service.name)


def is_valid(file: Path) -> subprocess.CompletedProcess[str]:
    """Check against the schema of the compose specification, as the check-jsonschema package carries it."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_it_is_valid_by_the_compose_specification(tmp_path: Path) -> None:
    for name, document in (("plain", PLAIN), ("tls", TLS)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document))
        checked = is_valid(file)
        assert checked.returncode == 0, checked.stdout
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump({"services": {"nginx": {"image": "nginx", "read_onyl": True}}}))
    assert is_valid(wrong).returncode == 1, "the check sees a typing error"


def test_it_is_two_servers_two_workers_a_database_and_one_way_in() -> None:
    assert set(SERVICES) == {"valkey", "server-1", "server-2", "worker-1", "worker-2", "nginx"}
    assert [name for name, service in SERVICES.items() if "ports" in service.raw] == ["nginx"]
    assert PLAIN["networks"]["back"] == {"internal": True}
    assert SERVICES["valkey"].raw["networks"] == ["back"]
    assert "back" not in SERVICES["nginx"].raw["networks"]


@each_service
def test_nothing_runs_with_more_rights_than_it_needs(service: Service) -> None:
    raw = service.raw
    uid, _, gid = raw["user"].partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert raw["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in raw
    assert "cap_add" not in raw
    assert any(mount.startswith("/tmp") for mount in raw["tmpfs"])
    for mount in raw.get("volumes", []):
        assert mount.split(":")[0] in PLAIN["volumes"], "no folder of the host"
    assert raw["logging"]["options"]["max-size"], "logs do not fill the disk"


@each_service
def test_everything_comes_back_and_is_started_without_a_shell(service: Service) -> None:
    assert service.raw["restart"] == "unless-stopped"
    assert service.raw["init"] is True, "signals reach a process that has not set its handlers yet"
    assert service.argv[0] in {"valkey-server", "unbroken", "nginx"}
    if "healthcheck" in service.raw:
        assert service.raw["healthcheck"]["test"][0] == "CMD"


@each_app
def test_a_stop_waits_longer_than_draining_takes(service: Service) -> None:
    drain = float(service.environment.get("UNBROKEN_DRAIN_S", Settings.model_fields["drain_s"].default))
    assert service.seconds("stop_grace_period") >= drain + 5


@each_app
def test_its_settings_are_settings(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in service.environment.items():
        assert name.removeprefix("UNBROKEN_").lower() in Settings.model_fields, name
        monkeypatch.setenv(name, value)
    settings = Settings()
    redis = urlsplit(settings.redis_url)
    assert (redis.hostname, redis.password) == ("valkey", GIVEN["VALKEY_PASSWORD"])
    assert service.raw["volumes"] == [f"objects:{settings.data_dir}"], "servers and workers share large checkpoints"
    assert not settings.insecure
    assert settings.backend != "local" or service.name.startswith("server")


def test_the_database_keeps_everything_and_evicts_nothing() -> None:
    argv = SERVICES["valkey"].argv
    given = {argv[at]: argv[at + 1] for at in range(1, len(argv), 2)}
    assert given["--appendonly"] == "yes"
    assert given["--appendfsync"] == "everysec"
    assert given["--maxmemory-policy"] == "noeviction"
    assert given["--requirepass"] == GIVEN["VALKEY_PASSWORD"]
    assert SERVICES["valkey"].raw["volumes"] == ["valkey:/data"]
    for name in ("server-1", "worker-1"):
        assert SERVICES[name].raw["depends_on"] == {"valkey": {"condition": "service_healthy"}}


@pytest.mark.parametrize("missing", ["VALKEY_PASSWORD", "UNBROKEN_BACKEND_URL", "UNBROKEN_MODEL"])
def test_what_has_to_be_set_is_asked_for_by_name(missing: str) -> None:
    with pytest.raises(NotSet, match=missing):
        load(COMPOSE, given={name: value for name, value in GIVEN.items() if name != missing})


def test_the_guide_names_every_variable() -> None:
    guide = (ROOT / "docs" / "production.md").read_text()
    assert sorted(name for name in variables(COMPOSE, COMPOSE_TLS) if f"`{name}`" not in guide) == []


@each_app
def test_every_setting_can_be_set_and_the_models_key_is_for_workers(service: Service) -> None:
    assert service.raw["env_file"] == [{"path": ".env", "required": False}]
    given = load(COMPOSE, given=GIVEN | {"UNBROKEN_API_KEY": "secret"})
    key = services(given)[service.name].environment["UNBROKEN_API_KEY"]
    assert key == ("secret" if service.name.startswith("worker") else "")


def test_the_guides_way_to_kinds_of_ones_own_adds_to_what_is_there(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "production.md").read_text(), re.DOTALL)
    override = tmp_path / "compose.override.yaml"
    override.write_text(shown)
    made = load(COMPOSE, override, given=GIVEN)
    both = services(made)
    for service in APP:
        changed = both[service.name]
        assert changed.environment == service.environment | {"UNBROKEN_KINDS": "my_kinds", "PYTHONPATH": "/kinds"}
        assert changed.raw["volumes"] == [*service.raw["volumes"], "./kinds:/kinds:ro"]
    file = tmp_path / "made.yaml"
    file.write_text(yaml.safe_dump(made))
    assert is_valid(file).returncode == 0


def test_nginx_names_the_servers_of_compose() -> None:
    upstream = (ROOT / "nginx" / "upstream.conf").read_text()
    named = re.findall(r"^ +server ([\w-]+):(\d+) ", upstream, re.MULTILINE)
    servers = [service for name, service in SERVICES.items() if name.startswith("server")]
    assert named == [(service.name, service.environment["UNBROKEN_PORT"]) for service in servers]
    assert all("front" in service.raw["networks"] for service in servers)


def test_limits_of_nginx_and_servers_agree() -> None:
    limit = re.search(r"client_max_body_size (\d+)m;", (ROOT / "nginx" / "http.conf").read_text())
    assert limit is not None
    assert int(limit[1]) * 1024 * 1024 == Settings.model_fields["body_max"].default


def test_nginx_lets_go_of_idle_connections_before_the_servers_do() -> None:
    kept = re.search(r"keepalive_timeout (\d+)s;", (ROOT / "nginx" / "upstream.conf").read_text())
    assert kept is not None
    assert int(kept[1]) + 3 <= config(Settings(), Starlette()).timeout_keep_alive


def test_with_tls_the_cookie_travels_over_tls_only() -> None:
    with_tls = services(TLS)
    for name in ("server-1", "server-2"):
        assert with_tls[name].environment["UNBROKEN_SECURE_COOKIE"] == "true"
        assert with_tls[name].environment["UNBROKEN_HOST"] == "0.0.0.0", "the rest of its settings is kept"
    assert with_tls["nginx"].argv[-1] == "/etc/unbroken/tls.conf"
    assert with_tls["nginx"].raw["ports"] == ["8080:8080", "443:8443"]


# The images


def test_both_images_run_as_the_users_of_compose_and_stop_by_signal() -> None:
    made = stages()
    for service in SERVICES.values():
        if "build" not in service.raw:
            continue
        stage = made[service.raw["build"]["target"]]
        assert stage.last("USER") == service.raw["user"]
        assert stage.exec_form("CMD")
        assert stage.last("STOPSIGNAL") == service.raw.get("stop_signal", "SIGTERM")
    assert made["app"].exec_form("CMD") == SERVICES["server-1"].argv
    assert made["web"].exec_form("ENTRYPOINT") + made["web"].exec_form("CMD") == SERVICES["nginx"].argv


def test_images_are_small_and_name_their_bases_plainly() -> None:
    made = stages()
    assert [stage.base for stage in made.values()] == ["python:3.11-slim", "python:3.11-slim", "nginx:stable"]
    syncs = [step for step in made["build"].all("RUN") if "uv sync" in step]
    assert len(syncs) == 2
    assert all("--no-default-groups" in step for step in syncs), "neither model nor tests in the image"
    assert "--no-editable" in syncs[-1]
    assert made["app"].all("COPY") == ["--from=build /opt/unbroken /opt/unbroken"]


def test_only_what_is_named_gets_into_the_build() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    copied = {word for stage in stages().values() for step in stage.all("COPY") for word in step.split()[:-1]}
    named = {line[1:] for line in lines if line.startswith("!")}
    assert named == {path.split("/")[0] for path in copied if not path.startswith(("-", "/"))}
