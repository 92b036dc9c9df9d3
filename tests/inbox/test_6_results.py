"""After the end: polling that costs nothing, results in parts, kept, found again, and told to whoever asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from standardwebhooks.webhooks import Webhook

from tests.inbox.office import Office, Record
from tests.support.api import scripted, story
from tests.support.wait import until
from unbroken.tasks import keys

SECRET = "whsec_" + "aW5ib3gtdGVzdHMtb25seS1zZWNyZXQ="


@pytest.mark.office(workers=1, reap_ms=60_000, lease_s=1)
async def test_a_task_whose_worker_is_gone_is_stale_until_somebody_takes_it(office: Office) -> None:
    """The reaper sleeps here, so that what it would mend at once can be seen."""
    task_id = (await office.api.submit(scripted(tokens=200, rate=50)))["task_id"]
    assert (await office.api.until_length(task_id, 50))["stale"] is False
    office.stack.kill_workers()
    stale = await until(lambda: _stale(office, task_id), "it to be stale")
    assert stale
    await office.stack.start_worker(reap_ms=100)
    done = await office.api.until_state(task_id, "completed")
    assert (done["stale"], done["attempts"]) == (False, 2)
    assert await office.api.text(task_id) == story(tokens=200)


async def _stale(office: Office, task_id: str) -> bool:
    task = await office.api.task(task_id)
    return bool(task["stale"] and task["state"] == "processing")


async def test_polling_is_cheap_and_results_come_in_parts(office: Office) -> None:
    task_id = (await office.api.submit(scripted(tokens=3_000)))["task_id"]
    await office.api.until_state(task_id, "completed")
    http, url = office.api.http, f"/api/tasks/{task_id}"
    whole = await http.get(url)
    assert len(whole.content) < 2_000, "however long the text is"
    again = await http.get(url, headers={"If-None-Match": whole.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")

    text = story(tokens=3_000).encode()
    result = await http.get(f"{url}/result")
    assert result.content == text
    got, size = b"", 7_001  # parts that cut characters
    while len(got) < len(text):
        headers = {"Range": f"bytes={len(got)}-{len(got) + size - 1}", "If-Range": result.headers["etag"]}
        part = await http.get(f"{url}/result", headers=headers)
        assert part.status_code == 206
        got += part.content
        assert part.headers["content-range"].endswith(f"/{len(text)}")
    assert got == text
    last = await http.get(f"{url}/result", headers={"Range": "bytes=-10"})
    assert last.content == text[-10:]
    assert (await http.get(f"{url}/result", headers={"Range": f"bytes={len(text)}-"})).status_code == 416


@pytest.mark.office(archive="true", result_s=1, record_s=2)
async def test_an_archived_result_outlives_its_task_until_it_is_deleted(office: Office) -> None:
    http = office.api.http
    ids = await office.submit_many(2, scripted(tokens=300))
    ids.append((await office.api.submit({"instruction": "x", "items": ["a", "b"]}, kind="batch"))["task_id"])
    results = {}
    for task_id in ids:
        await office.api.until_state(task_id, "completed")
        results[task_id] = (await http.get(f"/api/tasks/{task_id}/result")).content
    for what in ("text", "task"):  # the sweeper looks twice a minute and when the server starts
        await until(partial(_gone, office, what, ids), f"{what} to be swept", every=0.3)
    for task_id, content in results.items():
        assert (await http.get(f"/api/tasks/{task_id}")).status_code == 404
        assert (await http.get(f"/api/tasks/{task_id}/result")).content == content
        part = await http.get(f"/api/tasks/{task_id}/result", headers={"Range": "bytes=0-4"})
        assert (part.status_code, part.content) == (206, content[:5])
    assert (await http.delete(f"/api/tasks/{ids[0]}")).status_code == 204
    assert (await http.get(f"/api/tasks/{ids[0]}/result")).status_code == 404
    assert (await http.delete(f"/api/tasks/{ids[0]}")).status_code == 404
    assert (await http.get(f"/api/tasks/{ids[1]}/result")).status_code == 200


@pytest.mark.office(archive="true", result_s=0.2)
async def test_deleting_a_task_deletes_what_was_archived_of_it(office: Office) -> None:
    http = office.api.http
    task_id = (await office.api.submit(scripted(tokens=300)))["task_id"]
    await office.api.until_state(task_id, "completed")
    await until(partial(_gone, office, "text", [task_id]), "its text to be swept", every=0.3)
    assert (await http.get(f"/api/tasks/{task_id}/result")).content.decode() == story(tokens=300)
    assert (await http.delete(f"/api/tasks/{task_id}")).status_code == 204
    assert (await http.get(f"/api/tasks/{task_id}/result")).status_code == 404
    assert list((office.stack.folder / "data" / "objects").rglob("*.txt")) == []


async def _gone(office: Office, what: str, ids: list[str]) -> bool:
    if not await office.redis.exists(*(keys.key(what, task_id) for task_id in ids)):
        return True
    office.stack.servers[0].kill()
    await office.stack.start_server(0)
    return False


async def test_the_same_again_takes_the_finished_result(office: Office, record: Record) -> None:
    slow = {"scripted": {"tokens": 30, "rate": 60}}
    first = await office.api.submit({"prompt": "Hi", **slow}, cache_s=3_600)
    second = await office.api.submit({"prompt": "Hi", **slow}, cache_s=3_600)
    assert first["task_id"] != second["task_id"], "never an unfinished one"
    for task in (first, second):
        await office.api.until_state(task["task_id"], "completed")
    out, err = await office.cli("submit", "Hi", "--cache", "1h", "--input", json.dumps(slow))
    assert out.strip() in (first["task_id"], second["task_id"])
    assert "it was done before" in err
    other = await office.api.submit({"prompt": "Hi!", **slow}, cache_s=3_600)
    assert other["cached"] is False
    await office.api.until_state(other["task_id"], "completed")
    assert len(record.calls()) == 3


class Ear:
    """A receiver of callbacks that refuses the first one."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], bytes]] = []
        ear = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                ear.heard.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(204)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Silence."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"


@pytest.fixture
def ear() -> Iterator[Ear]:
    made = Ear()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.mark.office(webhook_secret=SECRET, webhook_private="true")
async def test_who_asked_to_be_called_is_called_once_for_each_end(office: Office, ear: Ear) -> None:
    failing = json.dumps({"scripted": {"tokens": 20, "fail": "permanent", "fail_at": 10}})
    task_id = (await office.cli("submit", "x", "--callback", ear.url, "--max-attempts", "1", "--input", failing))[
        0
    ].strip()
    await until(lambda: len(ear.heard) == 1, "the failure to be told")
    answer = await office.api.http.post("/api/dead-letters/replay", json={"task_ids": [task_id]})
    assert answer.json()["replayed"] == 1
    await until(lambda: len(ear.heard) == 2, "the success to be told")
    told = [Webhook(SECRET).verify(body, headers) for headers, body in ear.heard]
    assert [one["type"] for one in told] == ["task.failed", "task.completed"]
    assert [headers["webhook-id"] for headers, _ in ear.heard] == [f"{task_id}:1", f"{task_id}:2"]
    task = await until(lambda: _delivered(office, task_id), "the outcome to be seen on the task")
    assert task


async def _delivered(office: Office, task_id: str) -> bool:
    return bool((await office.api.task(task_id))["callback"] == {"tries": 1, "said": "delivered"})
