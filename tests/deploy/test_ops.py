"""Alerts and dashboard speak of numbers that a running server really exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.compose import COMPOSE, ROOT, load, services
from tests.support.api import scripted
from tests.support.processes import Stack
from tests.support.viewer import Viewer
from tests.support.wait import until
from unbroken.tasks.access import create_key
from unbroken.tasks.settings import Settings
from unbroken.tasks.store import open_store

OPS = ROOT / "ops"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((OPS / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((OPS / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

_NAME = re.compile(r"\b(unbroken_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GIVEN_BY_PROMETHEUS = {"job", "instance"}

Exported = dict[str, list[dict[str, str]]]


def queries() -> Iterator[tuple[str, str]]:
    """Every expression with where it stands."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


async def exported() -> Exported:
    """Names of a real server's samples, with the labels of each, after some traffic of every sort."""
    async with Stack() as stack:
        task = await stack.api.submit(scripted(tokens=20))
        await Viewer(stack.url, task["task_id"]).follow()
        failing = await stack.api.submit(scripted(tokens=20, fail="permanent", fail_at=5))
        await stack.api.until_state(failing["task_id"], "failed")
        answer = await stack.api.http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        found: Exported = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
        return found


async def test_every_number_that_is_asked_for_is_exported_with_its_labels() -> None:
    found = await exported()
    for where, expression in queries():
        names = list(_NAME.finditer(expression))
        assert names or 'up{job="unbroken"}' in expression, where
        for name, labels in (match.groups() for match in names):
            assert name in found, f"{where}: {name}"
            for label, how, value in _LABEL.findall(labels or ""):
                if label in GIVEN_BY_PROMETHEUS:
                    continue
                values = {sample.get(label) for sample in found[name]}
                assert None not in values, f"{where}: {name} has no label {label}"
                if how == "=":
                    assert value in values, f"{where}: {name} is never {label}={value}"
        for label in re.findall(r"by \(([^)]*)\)", expression):
            for one in (word.strip() for word in label.split(",")):
                assert one in GIVEN_BY_PROMETHEUS or all(
                    one in sample for match in names for sample in found[match[1]]
                ), f"{where}: by {one}"


async def test_what_is_exported_tells_no_owner_and_no_task() -> None:
    found = await exported()
    labels = {label for samples in found.values() for sample in samples for label in sample}
    assert labels <= {"index", "result", "method", "status", "loop", "version", "reason"}


def test_alerts_say_what_to_do_and_look_at_rates() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        for counter in re.findall(r"\w+_total\b", rule["expr"]):
            before = rule["expr"].split(counter)[0]
            assert before.rstrip().endswith(("rate(", "increase(")), f"{rule['alert']}: {counter} without a rate"
    covered = " ".join(rule["expr"] for rule in RULES)
    for number in ("unbroken_oldest_ready_seconds", "unbroken_failure_ratio_last_hour", "unbroken_redis_up", "up{"):
        assert number in covered


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panels_are_whole_and_counters_are_shown_as_rates(panel: dict[str, Any]) -> None:
    assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
    assert panel["fieldConfig"]["defaults"]["unit"]
    for target in panel["targets"]:
        for counter in re.findall(r"\w+_total\b", target["expr"]):
            assert f"rate({counter}" in target["expr"]


def test_panels_do_not_lie_over_one_another() -> None:
    seen: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & seen
        seen |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_prometheus_asks_the_servers_of_compose() -> None:
    scrape = yaml.safe_load((OPS / "prometheus.yaml").read_text())["scrape_configs"][0]
    given = {"VALKEY_PASSWORD": "x", "UNBROKEN_BACKEND_URL": "x", "UNBROKEN_MODEL": "x"}
    there = services(load(COMPOSE, given=given))
    assert scrape["job_name"] == "unbroken"
    assert scrape["static_configs"][0]["targets"] == [
        f"{name}:{one.environment['UNBROKEN_PORT']}" for name, one in there.items() if name.startswith("server")
    ]


async def test_metrics_need_a_key_where_tasks_do() -> None:
    """The scrape configuration sends one for this."""
    async with Stack(workers=0) as stack:
        store = open_store(Settings(redis_url=stack.redis_url), name="test")
        try:
            _, secret = await create_key(store, "prometheus", "")
        finally:
            await store.close()
        async with httpx.AsyncClient(base_url=stack.url) as client:

            async def refused() -> bool:
                return (await client.get("/metrics")).status_code == 401

            await until(refused, "the server to know that there is a key")
            answer = await client.get("/metrics", headers={"Authorization": f"Bearer {secret}"})
            assert answer.status_code == 200
