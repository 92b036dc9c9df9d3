"""Watching a task until it ends, over any number of cut connections and server restarts.

The cursor is the fold's last id: after a cut the server is asked for what follows it, so nothing is lost and
nothing comes twice. A hole (which a correct server never leaves) makes us begin again from the start."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from unbroken.cli.client import ApiError, Client, Unreachable, explain, quoted
from unbroken.cli.stream import TERMINAL, Event, Fold, NotOurs, Parser
from unbroken.tasks.errors import UnbrokenError

EXIT = {"completed": 0, "failed": 1, "paused": 3, "cancelled": 4}
# A heartbeat comes every 15 s; after two missed ones the connection is dead, whatever TCP believes.
SILENCE_S = 35.0
PATIENCE_S = 600.0  # without any answer; then it is an error
BACKOFF_CAP_S = 5.0
# A pause is an end for a script, but not one that is recovered in the next moment.
PAUSE_GRACE_S = 1.0


class View(Protocol):
    """What a watcher shows."""

    def event(self, event: Event, fold: Fold) -> None:
        """An event was applied."""
        ...

    def connection(self, words: str) -> None:
        """The connection's state in words; empty when all is well."""
        ...

    def restart(self) -> None:
        """The next event begins again at the start of the log."""
        ...


class Untrue(UnbrokenError):
    """The text does not match the digest that the server gives for it."""


@dataclass
class Watcher:
    """wait: stay through pauses, until the task really ends."""

    client: Client
    task_id: str
    view: View
    wait: bool = False
    fold: Fold = field(default_factory=Fold)
    reconnects: int = 0
    _failures: int = 0
    _base_s: float = 0.5
    _sleep: Callable[[float], None] = time.sleep

    def run(self) -> str:
        """Watch until the end. Returns the state: completed, failed, cancelled, or paused (unless `wait`).

        Raises ApiError (no such task, not allowed), Unreachable after PATIENCE_S, Untrue for a wrong digest."""
        last_answer = time.monotonic()
        while True:
            try:
                for _ in self._connection():
                    last_answer = time.monotonic()
                    if state := self._ended():
                        return state
                last_answer = time.monotonic()
                if state := self._state_after_end_of_stream():
                    return state
            except (httpx.TransportError, NotOurs, Unreachable) as error:
                if time.monotonic() - last_answer > PATIENCE_S:
                    raise Unreachable(f"lost the server at {self.client.url}: {error}") from None
            self._rest()

    def _ended(self) -> str | None:
        fold = self.fold
        if fold.ended == "completed" and not fold.proven():
            raise Untrue(f"the text received is not the one the server finished; see `unbroken result {self.task_id}`")
        if fold.ended:
            return fold.ended
        return "paused" if self._paused_for_good() else None

    def _paused_for_good(self) -> bool:
        if self.wait or self.fold.state != "paused":
            return False
        self._sleep(PAUSE_GRACE_S)
        try:
            return bool(self.client.task(self.task_id)["state"] == "paused")
        except Unreachable:
            return False

    def _state_after_end_of_stream(self) -> str | None:
        """The server closed the stream without a last event: it stops, or the task was over before the cursor."""
        if not self._nothing_left:
            return None
        state = str(self.client.task(self.task_id)["state"])
        return state if state in TERMINAL.values() else None

    _nothing_left: bool = False

    def _connection(self) -> Iterator[None]:
        """One connection: yields after every batch of events. Raises ApiError for a final refusal."""
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
        if self.fold.last_id:
            headers["Last-Event-ID"] = self.fold.last_id
        timeout = httpx.Timeout(SILENCE_S, connect=5)
        path = f"/api/tasks/{quoted(self.task_id)}/stream"
        self._nothing_left = False
        with self.client.http.stream("GET", path, headers=headers, timeout=timeout) as answer:
            if answer.status_code == 204:
                self._nothing_left = True
                return
            if answer.status_code != 200:
                self._refused(answer)
                return
            self.view.connection("")
            parser = Parser()
            for block in answer.iter_raw():
                events = parser.feed(block)
                if parser.retry_ms:
                    self._base_s = parser.retry_ms / 1000
                if not self._take(events):
                    return
                if events:
                    self._failures = 0
                    yield

    def _take(self, events: list[Event]) -> bool:
        for event in events:
            if not self.fold.apply(event):
                self.fold = Fold()
                self.view.restart()
                return False
            self.view.event(event, self.fold)
            if self.fold.ended:
                break
        return True

    def _refused(self, answer: httpx.Response) -> None:
        """Raise for an answer that will not change; otherwise remember how long to wait."""
        answer.read()
        if answer.status_code == 400 and self.fold.last_id:
            self.fold = Fold()  # our cursor is not understood any more: begin again
            self.view.restart()
            return
        if answer.status_code < 500 and answer.status_code not in (408, 425, 429):
            raise ApiError(answer.status_code, explain(answer))
        asked = answer.headers.get("retry-after", "")
        if asked.isdigit():
            self._base_s = min(float(asked), 60.0)

    def _rest(self) -> None:
        """Wait before the next connection: at once-ish after the first cut, longer and spread when it goes on."""
        self.reconnects += 1
        ceiling = min(BACKOFF_CAP_S, self._base_s * 2**self._failures)
        self._failures = min(self._failures + 1, 8)
        pause = random.uniform(0.05, max(0.1, ceiling))  # noqa: S311
        self.view.connection(f"reconnecting in {pause:.1f} s")
        self._sleep(pause)
