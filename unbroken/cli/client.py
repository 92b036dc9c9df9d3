"""The server's HTTP API for commands. Every error is a sentence for the person at the terminal."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from unbroken.cli import place
from unbroken.tasks.errors import UnbrokenError
from unbroken.tasks.settings import BadSetting, load

TIMEOUT = httpx.Timeout(30, connect=5)
# How long a call that is safe to repeat is repeated while the server restarts.
PATIENCE_S = 15.0
TITLES_AT_ONCE = 200  # ids that the server takes in one call


class ApiError(UnbrokenError):
    """The server refused. `status` is HTTP's; the message is the server's own sentence; `problem` is its document."""

    def __init__(self, status: int, message: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.problem = {"status": status, **(problem or {})}


class Unreachable(UnbrokenError):
    """No server at this address, or it went away."""


def base_url(given: str | None = None) -> str:
    """Where the server is: as told, else UNBROKEN_URL, else the one running in the data folder, else the
    settings' host and port."""
    if url := given or os.environ.get("UNBROKEN_URL"):
        return url.rstrip("/")
    settings = load()
    if not {"host", "port"} & settings.model_fields_set:
        found = place.running(Path(settings.data_dir)).get("url")
        if isinstance(found, str):
            return found
    return place.address(settings.host, settings.port)


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    """The problem document of an answer; {} when there is none."""
    try:
        problem = answer.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def explain(answer: httpx.Response) -> str:
    """The sentence in a problem+json answer, with one line for each bad field."""
    problem = problem_of(answer)
    if not problem:
        return f"the server answered {answer.status_code} {answer.reason_phrase}"
    said = str(problem.get("detail") or problem.get("title") or f"status {answer.status_code}")
    lines = [said]
    for error in problem.get("errors") or ():
        if isinstance(error, dict):
            where = error.get("field") or error.get("pointer") or error.get("loc") or error.get("name") or ""
            where = ".".join(map(str, where)) if isinstance(where, list) else str(where)
            lines.append(f"  {where}: {error.get('message') or error.get('detail') or error.get('msg') or ''}")
    if len(lines) > 1:  # the sentence speaks of the first field, so that it need not be read twice
        lines = [lines[1].strip()] if len(lines) == 2 else [f"{len(lines) - 1} fields are not right", *lines[1:]]
    wait = answer.headers.get("retry-after", "")
    if answer.status_code == 429 and wait.isdigit() and f"{wait} s" not in said:
        lines.append(f"  (again in {wait} s)")
    if answer.status_code == 401:
        lines.append("  (set UNBROKEN_KEY to a key; `unbroken keys create` on the server's machine makes one)")
    return "\n".join(lines)


class Client:
    """Calls as a person makes them. Use as a context manager."""

    def __init__(self, url: str | None = None) -> None:
        self.url = base_url(url)
        if not self.url.startswith(("http://", "https://")):
            raise BadSetting(f"{self.url} is not the address of a server; it begins with http:// or https://")
        headers = {"Accept": "application/json", "User-Agent": "unbroken-cli"}
        if key := os.environ.get("UNBROKEN_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        # Proxies from the environment are for the world outside, not for a server on this machine.
        local = httpx.URL(self.url).host in {"127.0.0.1", "localhost", "::1"}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT, trust_env=not local)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def call(self, method: str, path: str, *, safe: bool = False, **more: Any) -> httpx.Response:
        """One call. safe: it may be repeated while the server is away or says 503. Raises ApiError for an
        answer of 400 and above, Unreachable without an answer."""
        give_up = time.monotonic() + (PATIENCE_S if safe else 0)
        pause = 0.2
        while True:
            try:
                answer = self.http.request(method, path, **more)
            except httpx.HTTPError as error:
                # Nobody listens: nothing was sent and nothing will change by itself. Say so at once.
                if isinstance(error, httpx.ConnectError) or time.monotonic() + pause > give_up:
                    raise self.unreachable(error) from None
            except httpx.InvalidURL as error:
                raise Unreachable(f"{self.url} is not an address: {error}") from None
            else:
                if answer.status_code < 400:
                    return answer
                if answer.status_code != 503 or time.monotonic() + pause > give_up:
                    raise ApiError(answer.status_code, explain(answer), problem_of(answer))
            time.sleep(pause)
            pause = min(2.0, pause * 2)

    def unreachable(self, error: Exception) -> Unreachable:
        """The sentence for a server that does not answer."""
        if isinstance(error, httpx.ConnectError):
            return Unreachable(f"no server answers at {self.url}; start one with `unbroken up`, or name it with --url")
        return Unreachable(f"the server at {self.url} did not answer: {error or type(error).__name__}")

    def get(self, path: str, **query: Any) -> Any:
        """GET, decoded. Values of None are left out of the query."""
        params = {name: value for name, value in query.items() if value is not None}
        return self.call("GET", path, safe=True, params=params).json()

    def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Any:
        """POST, decoded. Everything we post is idempotent, so it is repeated when the answer was lost."""
        answer = self.call("POST", path, safe=True, json=body, headers=dict(headers or {}))
        return answer.json() if answer.content else {}

    def submit(self, body: Mapping[str, Any], key: str | None = None) -> dict[str, Any]:
        """Create a task, once: a key of our own makes the repeat after a lost answer harmless."""
        task: dict[str, Any] = self.post(
            "/api/tasks", dict(body), headers={"Idempotency-Key": key or f"cli-{uuid.uuid4()}"}
        )
        return task

    def task(self, task_id: str) -> dict[str, Any]:
        """One task."""
        task: dict[str, Any] = self.get(f"/api/tasks/{quoted(task_id)}")
        return task

    def delete(self, task_id: str) -> None:
        """Remove an ended task. The key makes a repeat after a lost answer say the same."""
        headers = {"Idempotency-Key": f"cli-{uuid.uuid4()}"}
        self.call("DELETE", f"/api/tasks/{quoted(task_id)}", safe=True, headers=headers)

    def titles(self, task_ids: Sequence[str]) -> dict[str, str]:
        """Titles by id, of those that have one. A server that is older and knows no titles is no error."""
        found: dict[str, str] = {}
        for at in range(0, len(task_ids), TITLES_AT_ONCE):
            try:
                found |= self.get("/api/titles", task=list(task_ids[at : at + TITLES_AT_ONCE]))["titles"]
            except ApiError as error:
                if error.status != 404:
                    raise
        return found


def quoted(task_id: str) -> str:
    """A task id as a part of a path."""
    from urllib.parse import quote

    return quote(task_id, safe="")
