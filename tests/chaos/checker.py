"""The judge. Works on what is left when everything is quiet: the recorded answers, the viewers' texts, the database,
and the record of all model calls. Each rule says what it found in words; no words, no violation."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.history import Case, History
from tests.faults.ground import audit_chain
from tests.support.desk import Desk
from unbroken.tasks import keys
from unbroken.tasks.audit import check_log, recount, task_ids
from unbroken.tasks.inputs import Message
from unbroken.worker.backends.scripted import script_text

FOR_EVER = {"audit", "keys"}  # without a lifetime on purpose: capped, and the owner's API keys


@dataclass
class Log:
    """One task's events, read once."""

    events: list[tuple[str, str, dict[str, Any]]]
    text: str = ""
    at_claim: dict[int, int] = field(default_factory=dict)
    """Characters in the log when this attempt began."""
    set_in: dict[int, int] = field(default_factory=dict)
    """The attempt that set this item."""
    items: dict[int, dict[str, Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        attempt, epoch, doubled = 0, 0, Counter[int]()
        for event_id, name, data in self.events:
            if name == "status" and data["state"] == "processing":
                if data["attempt"] != attempt + 1:
                    self.wrong.append(f"attempt {data['attempt']} follows {attempt}")
                attempt, now = data["attempt"], int(event_id.partition("-")[0])
                if now <= epoch:
                    self.wrong.append(f"epoch {now} is given out after {epoch}")
                epoch = now
                self.at_claim[attempt] = len(self.text)
            elif name == "chunk":
                if data["offset"] != len(self.text):
                    self.wrong.append(f"{event_id} begins at {data['offset']}, the text has {len(self.text)}")
                self.text = self.text[: data["offset"]] + data["text"]
            elif name == "item":
                doubled[data["index"]] += 1
                self.set_in[data["index"]] = attempt
                self.items[data["index"]] = data
        self.wrong += [f"item {index} is set {times} times" for index, times in doubled.items() if times > 1]


async def judge(history: History, desk: Desk, calls: Path) -> list[str]:
    """Every rule over the whole run."""
    wrong = list(history.wrong)
    wrong += (await recount(desk.store)).differences
    found = {task_id async for page in task_ids(desk.store) for task_id in page}
    accepted = {case.task_id for case in history.cases}
    wrong += [f"{task_id}: accepted, and gone" for task_id in accepted - found]
    wrong += [f"{task_id}: exists, and nobody was told" for task_id in found - accepted]
    by_task = calls_of(calls)
    for case in history.cases:
        if case.task_id in found:
            wrong += [
                f"{case.task_id} ({case.order.name}): {what}" for what in await _case(case, desk, by_task, history)
            ]
    return wrong


async def _case(case: Case, desk: Desk, calls: dict[str, list[dict[str, Any]]], history: History) -> list[str]:
    if len(case.task_ids) != 1:
        return [f"one key made {len(case.task_ids)} tasks: {case.task_ids}"]
    log = await log_of(desk, case.task_id)
    history.numbers["events"] += len(log.events)
    history.numbers["bytes of text"] += len(log.text.encode())
    history.numbers["attempts"] += len(log.at_claim)
    history.numbers[f"{case.order.kind} {case.final['state']}"] += 1
    wrong = [*log.wrong, *await check_log(desk.store, case.task_id), *await audit_chain(desk, case.task_id)]
    wrong += [*_result(case, log), *_viewers(case, log), *_moves(case, log)]
    wrong += _generated(case, log, calls[case.task_id])
    wrong += await _recoveries(case, desk)
    return wrong


def _result(case: Case, log: Log) -> Iterator[str]:
    order, state = case.order, case.final["state"]
    if order.kind == "batch":
        for index, item in log.items.items():
            if item["ok"] and item["result"] != order.items[index]:
                yield f"item {index} is not what it has to be"
        if state == "completed" and len(log.items) != len(order.items):
            yield f"completed with {len(log.items)} of {len(order.items)} items"
    elif state == "completed" and log.text != order.text:
        yield f"the text differs: {_first_difference(log.text, order.text)}"
    elif not order.text.startswith(log.text):
        yield f"what there is of the text differs: {_first_difference(log.text, order.text)}"
    if order.kind != "batch" and state == "completed":
        digest = hashlib.sha256(order.text.encode()).hexdigest()
        done = log.events[-1][2]
        if (done.get("length"), done.get("sha256")) != (len(order.text), digest):
            yield f"`done` says {done}"


def _first_difference(a: str, b: str) -> str:
    at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"{len(a)} and {len(b)} characters, from {at} on: {a[at : at + 30]!r} and {b[at : at + 30]!r}"


def _viewers(case: Case, log: Log) -> Iterator[str]:
    for viewer in case.viewers:
        if viewer.end is None:
            yield f"a viewer saw no end; it was at {viewer.last_id}, {viewer.state}"
            continue
        if viewer.rewinds:
            yield f"a viewer was taken back {viewer.rewinds} times"
        same = viewer.text == log.text if viewer.end.name == "done" else log.text.startswith(viewer.text)
        if not same:
            yield f"a viewer read another text: {_first_difference(viewer.text, log.text)}"
        for index, item in viewer.items.items():
            if item != log.items.get(index):
                yield f"a viewer saw another item {index}"
        if viewer.end.name == "done" and len(viewer.items) != len(log.items):
            yield f"a viewer saw {len(viewer.items)} of {len(log.items)} items"


def _moves(case: Case, log: Log) -> Iterator[str]:
    """Cancel wins; the answers agree with each other."""
    state = case.final["state"]
    if case.cancelled_at is not None and state != "cancelled":
        yield f"cancelled with 2xx, and ends {state}"
    if state == "cancelled" and case.cancelled_at is None and not case.all("cancel"):
        yield "cancelled by nobody"
    for answer in case.answers:
        if answer.status not in (0, 200, 201, 202, 409, 429, 500, 502, 503):
            yield f"{answer.verb} was answered with {answer.status} {answer.body}"
        if answer.status == 500:
            yield f"{answer.verb} met a server that fell over: {answer.body}"
    failures = sum(name == "failed" for _, name, _ in log.events)
    if sum(bool(a.body.get("replayed")) for a in case.all("replay")) > failures:
        yield f"replayed more often than it failed ({failures})"


async def _recoveries(case: Case, desk: Desk) -> list[str]:
    """Never more recovery ids than recoveries."""
    told = {a.body["recovery_id"] for a in case.all("recover") if a.status in (200, 202)}
    started = [a.body["recovery_id"] for a in case.all("recover") if a.status == 202]
    entries = await desk.redis.xrange(keys.key("audit"))
    done = sum(e[b"op"] == b"recover" for _, e in entries if e[b"task"].decode() == case.task_id)
    wrong = []
    if len(told) > done:
        wrong.append(f"{len(told)} recovery ids were told and {done} recoveries made")
    if len(started) != len(set(started)):
        wrong.append(f"one recovery was started twice: {started}")
    return wrong


def _generated(case: Case, log: Log, calls: list[dict[str, Any]]) -> Iterator[str]:
    """G9, G13: nothing that the log held at a claim was asked of the model again."""
    script = case.order.body["input"]["scripted"]
    for call in calls:
        attempt, _, part = call["request_id"][len(case.task_id) + 1 :].partition("-")
        if part.startswith("item-"):
            index = int(part.removeprefix("item-"))
            if int(attempt) > log.set_in.get(index, 1 << 30):
                yield f"item {index} was set in attempt {log.set_in[index]} and run again in attempt {attempt}"
        elif case.order.kind == "text" and int(attempt) in log.at_claim:
            yield from said_again(log, call, script, case.order.body["input"]["prompt"])


def said_again(log: Log, call: dict[str, Any], script: dict[str, Any], prompt: str) -> Iterator[str]:
    """Did this model call begin at a token that the log held already when its attempt began?"""
    held = log.at_claim[call["attempt"]]
    if call["first"] < script["tokens"]:
        reach = len(script_text(script["seed"], call["first"] + 1, [Message(role="user", content=prompt)]))
        if reach <= held:
            yield f"attempt {call['attempt']} made token {call['first']} again: the log held {held} characters"


def calls_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The record of all model calls (UNBROKEN_SCRIPTED_RECORD), by task."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if path.exists():
        for line in path.read_text().splitlines():
            call = json.loads(line)
            found[call["task_id"]].append(call)
    return found


async def log_of(desk: Desk, task_id: str) -> Log:
    """A task's log, read from its start."""
    raw = await desk.store.events(task_id, "0-0", count=1_000_000)
    return Log([(event_id, name, json.loads(data)) for event_id, name, data in raw])


async def judge_emptiness(desk: Desk) -> list[str]:
    """After every task is deleted: no key without a lifetime."""
    wrong = []
    start = len(keys.prefix())
    async for raw in desk.redis.scan_iter(match=keys.prefix() + "*", count=500):
        name = raw.decode()[start:]
        if name.partition(":")[0] not in FOR_EVER and await desk.redis.pttl(raw) == -1:
            wrong.append(f"left behind for ever: {name}")
    return wrong
