"""Numbers for Prometheus.

What is true of the whole installation is read from Redis at each scrape, so it survives restarts of this process and is
the same whichever process is asked; what is true of this process is counted here. No label ever names an owner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from unbroken import __version__
from unbroken.server.context import Services
from unbroken.tasks import overview
from unbroken.tasks.errors import StoreUnavailable


class _Ready(Collector):
    """Families that are made already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._families


async def scrape(services: Services) -> bytes:
    """The text format. Without Redis only this process's numbers are there, and `unbroken_redis_up` is 0."""
    families = list(process(services))
    try:
        numbers = await overview.totals(services.store)
    except StoreUnavailable:
        numbers = None
    families.append(GaugeMetricFamily("unbroken_redis_up", "1 when Redis answered this scrape.", numbers is not None))
    if numbers is not None:
        families += installation(numbers)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(families))
    return generate_latest(registry)


def installation(numbers: dict[str, Any]) -> Iterator[Metric]:
    """What Redis says."""
    tasks = GaugeMetricFamily("unbroken_tasks", "Tasks by the index they stand in.", labels=["index"])
    for index, size in numbers["indexes"].items():
        tasks.add_metric([index], size)
    yield tasks
    paused = GaugeMetricFamily("unbroken_paused", "Tasks that wait for a recover.", labels=["reason"])
    for reason, size in numbers["paused"].items():
        paused.add_metric([reason], size)
    yield paused
    yield CounterMetricFamily(
        "unbroken_checkpoint_failures",
        "Checkpoints that could not be saved, as far as the database could be told.",
        numbers["counters"].get("checkpoint_failures", 0),
    )
    yield GaugeMetricFamily("unbroken_queue_depth", "Tasks that could start now.", numbers["indexes"]["ready"])
    yield GaugeMetricFamily("unbroken_in_flight", "Tasks that a worker holds.", numbers["indexes"]["leases"])
    yield GaugeMetricFamily(
        "unbroken_leases_overdue", "Leases that ran out and were not taken back yet.", numbers["leases_overdue"]
    )
    yield GaugeMetricFamily(
        "unbroken_oldest_ready_seconds", "How long the first in the queue have been due.", numbers["oldest_ready_s"]
    )
    ended = GaugeMetricFamily("unbroken_ended_last_hour", "Tasks that ended in the last hour.", labels=["result"])
    ended.add_metric(["completed"], numbers["last_hour"]["successes"])
    ended.add_metric(["failed"], numbers["last_hour"]["failures"])
    yield ended
    yield GaugeMetricFamily(
        "unbroken_failure_ratio_last_hour", "Failed of all ended.", numbers["last_hour"]["failure_ratio"] or 0
    )


def process(services: Services) -> Iterator[Metric]:
    """What this process counts."""
    hub, replayer = services.hub, services.replayer
    info = GaugeMetricFamily("unbroken_info", "Version.", labels=["version"])
    info.add_metric([__version__], 1)
    yield info
    yield GaugeMetricFamily("unbroken_viewers", "Open event streams of this process.", len(hub.watchers))
    yield GaugeMetricFamily("unbroken_topics", "Tasks that this process watches.", len(hub.topics))
    yield CounterMetricFamily("unbroken_pushes", "Pushes received from Redis and handed on.", hub.frames)
    yield CounterMetricFamily("unbroken_holes", "Holes in the pushes, filled from the log.", hub.holes)
    yield CounterMetricFamily("unbroken_feed_reconnects", "Times the feed came back.", max(0, hub.feed.reconnects))
    yield CounterMetricFamily("unbroken_replays", "Viewers that asked for the past.", services.replays)
    yield CounterMetricFamily("unbroken_replay_reads", "Pages of the past read from Redis.", replayer.reads)
    answers = CounterMetricFamily("unbroken_http_answers", "Finished requests.", labels=["method", "status"])
    for (method, status), count in sorted(services.answers.items()):
        answers.add_metric([method, str(status)], count)
    yield answers
    now = time.monotonic()
    loops = GaugeMetricFamily("unbroken_loop_age_seconds", "Time since a loop last did its work.", labels=["loop"])
    for name, finished in [("hub", hub.checked), *((loop.name, loop.finished) for loop in services.loops)]:
        loops.add_metric([name], now - (finished or services.started))
    yield loops
