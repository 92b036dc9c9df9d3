"""What was asked and answered, kept as it happens; the checker reads it when everything is over."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.plan import Order
from tests.support.viewer import Viewer


@dataclass
class Answer:
    """One HTTP answer. status 0: none came."""

    verb: str
    status: int
    body: dict[str, Any]
    at: float


@dataclass
class Case:
    """Everything about one order."""

    order: Order
    key: str
    task_ids: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)
    viewers: list[Viewer] = field(default_factory=list)
    final: dict[str, Any] = field(default_factory=dict)
    cancelled_at: float | None = None
    """When the first cancel was answered with 2xx."""

    @property
    def task_id(self) -> str:
        """The task, or '' when no submit was ever answered."""
        return next(iter(self.task_ids), "")

    def all(self, verb: str) -> list[Answer]:
        """Its answers to one verb."""
        return [answer for answer in self.answers if answer.verb == verb]


@dataclass
class History:
    """The whole run."""

    seed: int
    cases: list[Case] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    """What the weather did, by name."""
    numbers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """Violations that were seen while it ran."""
    log: list[tuple[float, str]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def note(self, what: str) -> None:
        """One line of the diary."""
        self.log.append((time.monotonic() - self.began, what))

    def deed(self, name: str, what: str = "") -> None:
        """The weather did something."""
        self.deeds[name] += 1
        self.note(f"{name} {what}".rstrip())

    def progress(self, lost: int) -> str:
        """Where a run is, in one line. lost: replies lost so far."""
        ended = sum(bool(case.final) for case in self.cases)
        kills = sum(times for what, times in self.deeds.items() if what.startswith(("kill", "SIGTERM")))
        viewers = [viewer for case in self.cases for viewer in case.viewers]
        cuts = sum(max(0, viewer.connections + viewer.refused - 1) for viewer in viewers)
        return (
            f"seed {self.seed}, {time.monotonic() - self.began:.0f} s: {len(self.cases)} tasks ({ended} ended), "
            f"{kills} kills of {sum(self.deeds.values())} deeds, {cuts} cut viewers, {lost} lost replies, "
            f"{len(self.wrong)} violations so far"
        )

    def write(self, folder: Path) -> None:
        """Keep it for whoever has to find out what happened."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "diary.txt").write_text("".join(f"{at:8.3f} {what}\n" for at, what in self.log))
        cases = [
            {
                "order": case.order.name,
                "task_ids": sorted(case.task_ids),
                "body": case.order.body,
                "answers": [[a.at - self.began, a.verb, a.status, a.body] for a in case.answers],
                "viewers": [[v.state, len(v.text), v.connections, v.rewinds, v.last_id] for v in case.viewers],
                "final": case.final,
            }
            for case in self.cases
        ]
        (folder / "cases.json").write_text(json.dumps(cases, indent=1, default=str))
