"""The HTTP API for tests: short calls that fail with the server's own words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import httpx

from tests.support.wait import PATIENCE_S, until
from unbroken.tasks.inputs import Message
from unbroken.worker.backends.scripted import script_text

Task = dict[str, Any]

PROMPT = "Write a story about a lighthouse."


def scripted(
    *,
    seed: int = 7,
    tokens: int = 200,
    rate: float = 0,
    fail_at: int | None = None,
    fail: Literal["transient", "permanent", "crash", "hang"] | None = None,
    fail_times: int = 1,
    prompt: str = PROMPT,
) -> dict[str, Any]:
    """The input of a text task for the scripted backend."""
    script: dict[str, Any] = {"seed": seed, "tokens": tokens, "rate": rate}
    if fail is not None:
        script |= {"fail": fail, "fail_at": fail_at, "fail_times": fail_times}
    return {"prompt": prompt, "scripted": script}


def story(*, seed: int = 7, tokens: int = 200, prompt: str = PROMPT) -> str:
    """The whole text that such a task gives when nothing disturbs it."""
    return script_text(seed, tokens, [Message(role="user", content=prompt)])


class Api:
    """A client of one server. key: an API key, sent as a bearer token."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    async def _ok(self, answer: httpx.Response) -> Any:
        assert answer.is_success, f"{answer.request.method} {answer.url}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def submit(self, data: dict[str, Any], *, key: str | None = None, **body: Any) -> Task:
        """Create a task; `body` holds what stands beside kind and input."""
        headers = {"Idempotency-Key": key} if key else {}
        request = {"kind": "text", "input": data, **body}
        task: Task = await self._ok(await self.http.post("/api/tasks", json=request, headers=headers))
        return task

    async def task(self, task_id: str) -> Task:
        """The task object."""
        task: Task = await self._ok(await self.http.get(f"/api/tasks/{task_id}"))
        return task

    async def text(self, task_id: str) -> str:
        """The stored result as text."""
        answer = await self.http.get(f"/api/tasks/{task_id}/result", headers={"Accept": "text/plain"})
        assert answer.is_success, f"{answer.status_code} {answer.text}"
        return answer.content.decode("utf-8")

    async def post(self, task_id: str, what: str, **headers: str) -> httpx.Response:
        """recover, pause, cancel: the raw answer."""
        return await self.http.post(f"/api/tasks/{task_id}/{what}", headers=headers)

    async def until_state(self, task_id: str, states: str | Iterable[str], *, within: float = PATIENCE_S) -> Task:
        """Wait until the task is in one of `states`."""
        wanted = {states} if isinstance(states, str) else set(states)
        last: dict[str, Any] = {}

        async def there() -> Task | None:
            last.update(await self.task(task_id))
            return dict(last) if last["state"] in wanted else None

        try:
            return await until(there, f"{task_id} to be {' or '.join(sorted(wanted))}", within=within)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the task is {last}") from None

    async def until_length(self, task_id: str, length: int, *, within: float = PATIENCE_S) -> Task:
        """Wait until the task has at least `length` characters of text."""

        async def grown() -> Task | None:
            task = await self.task(task_id)
            return task if task["length"] >= length else None

        return await until(grown, f"{task_id} to have {length} characters", within=within)
