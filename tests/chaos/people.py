"""Customers and viewers: they do what the plan says, and do not give up because a server is away."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.history import Answer, Case, History
from tests.chaos.plan import Order, orders
from tests.support.viewer import Viewer

TERMINAL = {"completed", "failed", "cancelled"}
CALL_S = 10.0


@dataclass
class Wanderer(Viewer):
    """A viewer who asks any of the servers at each new connection."""

    urls: list[str] = field(default_factory=list)
    chance: random.Random = field(default_factory=random.Random)

    @property
    def path(self) -> str:
        """Where the stream is this time."""
        return f"{self.chance.choice(self.urls)}/api/tasks/{self.task_id}/stream"


class Customer:
    """One customer: order after order until `stop`, each to its end."""

    def __init__(self, number: int, history: History, urls: list[str], http: httpx.AsyncClient) -> None:
        self.number, self.history, self.urls, self.http = number, history, urls, http
        self.chance = random.Random(f"{history.seed}:manner:{number}")
        self.stopping = False
        self._jobs: list[asyncio.Task[Any]] = []

    async def run(self) -> None:
        """Until stopped; the order in hand is brought to its end."""
        for order in orders(self.history.seed, self.number):
            if self.stopping:
                return
            await self.serve(order)

    async def serve(self, order: Order) -> None:
        """One order from submit to end."""
        case = Case(order, f"key-{self.history.seed}-{order.name}")
        self.history.cases.append(case)
        await asyncio.gather(*(self.submit(case) for _ in range(order.submits)))
        began = time.monotonic()
        viewing = []
        for n in range(order.viewers):
            chance = random.Random(f"{self.history.seed}:{order.name}:viewer:{n}")
            viewer = Wanderer("", case.task_id, urls=self.urls, chance=chance)
            case.viewers.append(viewer)
            viewing.append(asyncio.create_task(self.view(case, viewer)))
        for when, verb, times in order.storms:
            await asyncio.sleep(max(0.0, began + when - time.monotonic()))
            await self.storm(case, verb, times)
        await self.bring_to_an_end(case)
        await asyncio.gather(*viewing)

    async def view(self, case: Case, viewer: Wanderer) -> None:
        """Watch to the end of this generation."""
        try:
            await viewer.follow(cuts=case.order.cuts, chance=viewer.chance, within=240)
        except Exception as error:
            self.history.wrong.append(f"{case.task_id}: viewer: {type(error).__name__} {error}")

    async def bring_to_an_end(self, case: Case) -> None:
        """Recover what was paused, replay what failed (once), until the task has ended."""
        replayed = not case.order.replays
        while True:
            task = (await self.call(case, "look", "GET", f"/api/tasks/{case.task_id}")).body
            if task["state"] == "paused":
                await self.storm(case, "recover", self.chance.choice([1, 4]))
            elif task["state"] == "failed" and not replayed:
                replayed = True
                body = {"task_ids": [case.task_id]}
                calls = (self.call(case, "replay", "POST", "/api/dead-letters/replay", json=body) for _ in range(3))
                await asyncio.gather(*calls)
            elif task["state"] in TERMINAL:
                case.final = task
                return
            await asyncio.sleep(self.chance.uniform(0.1, 0.4))

    async def submit(self, case: Case) -> None:
        """Ask until it is answered; always with the same key."""
        answer = await self.call(
            case, "submit", "POST", "/api/tasks", json=case.order.body, headers={"Idempotency-Key": case.key}
        )
        if answer.status != 201:
            raise AssertionError(f"a submit was answered with {answer.status} {answer.body}")
        case.task_ids.add(answer.body["task_id"])

    async def storm(self, case: Case, verb: str, times: int) -> None:
        """The same call several times at once."""
        headers = {"Idempotency-Key": f"{case.key}-{verb}-{len(case.answers)}"}
        path = f"/api/tasks/{case.task_id}/{verb}"
        answers = await asyncio.gather(
            *(self.call(case, verb, "POST", path, headers=headers) for _ in range(times)),
        )
        if verb == "cancel" and any(answer.status < 300 for answer in answers):
            case.cancelled_at = case.cancelled_at or time.monotonic()

    async def call(self, case: Case, verb: str, method: str, path: str, **given: Any) -> Answer:
        """One call, at any server, again until it is answered with anything but 409 in progress, 429 or 5xx."""
        while True:
            url = self.chance.choice(self.urls)
            self.history.numbers["requests"] += 1
            try:
                got = await self.http.request(method, url + path, timeout=CALL_S, **given)
            except httpx.HTTPError as error:
                if verb != "look":
                    case.answers.append(Answer(verb, 0, {"error": repr(error)}, time.monotonic()))
                await asyncio.sleep(self.chance.uniform(0.05, 0.3))
                continue
            body = got.json() if got.content else {}
            answer = Answer(verb, got.status_code, body, time.monotonic())
            if verb != "look":
                case.answers.append(answer)
            if got.status_code >= 500 or got.status_code == 429 or (verb == "submit" and got.status_code == 409):
                self.history.numbers[f"answered {got.status_code}"] += 1
                await asyncio.sleep(self.chance.uniform(0.05, 0.3))
                continue
            return answer
