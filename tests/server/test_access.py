"""Who may do what: keys, sign-in, and that a foreign task looks like none (G16)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.server.asking import CALLS, GOOD, problem, submit
from tests.server.site import Reading, Site, running, watching, whole
from tests.support.desk import Desk
from tests.support.wait import until
from unbroken.server.guards import check
from unbroken.tasks import access, keys
from unbroken.tasks.settings import BadSetting, Settings


@pytest.fixture
async def alice(desk: Desk, site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """Has a key."""
    async with await _holder(desk, site, "alice") as client:
        yield client


@pytest.fixture
async def eve(desk: Desk, site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """Has another."""
    async with await _holder(desk, site, "eve") as client:
        yield client


async def _holder(desk: Desk, site: Site, owner: str) -> httpx.AsyncClient:
    _, secret = await access.create_key(desk.store, owner, "test")
    headers = {"Authorization": f"Bearer {secret}"}
    client = httpx.AsyncClient(base_url=site.url, trust_env=False, headers=headers, timeout=20)
    await until(lambda: _keys_needed(site), "the server to notice that there are keys")
    return client


async def _keys_needed(site: Site) -> bool:
    async with httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
        return (await client.get("/api/tasks")).status_code == 401


async def test_a_foreign_task_looks_like_none(alice: httpx.AsyncClient, eve: httpx.AsyncClient, desk: Desk) -> None:
    task = await submit(alice)
    unknown = "s0-" + "0" * 26
    before = await desk.dump(task["task_id"])
    for method, tail in CALLS:
        mine = await eve.request(method, f"/api/tasks/{task['task_id']}{tail}")
        none = await eve.request(method, f"/api/tasks/{unknown}{tail}")
        problem(mine, 404)
        assert mine.text == none.text
    problem(await eve.get(f"/api/stream?task={task['task_id']}"), 404)
    replay = await eve.post("/api/dead-letters/replay", json={"task_ids": [task["task_id"], unknown]})
    assert len(set(replay.json()["refused"].values())) == 1
    assert (await eve.get("/api/tasks")).json()["items"] == []
    assert (await eve.get("/api/dead-letters")).json()["groups"] == []
    assert set((await eve.get("/api/stats")).json()["states"].values()) == {0}
    assert "alice" not in (await eve.get("/metrics")).text
    assert await desk.dump(task["task_id"]) == before
    assert (await alice.get(f"/api/tasks/{task['task_id']}")).status_code == 200


async def test_idempotency_keys_are_per_owner(alice: httpx.AsyncClient, eve: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k"}
    one = await alice.post("/api/tasks", json=GOOD, headers=headers)
    two = await eve.post("/api/tasks", json=GOOD, headers=headers)
    assert one.json()["task_id"] != two.json()["task_id"]


async def test_without_a_key_nothing_but_the_page_and_health(alice: httpx.AsyncClient, site: Site) -> None:
    task = await submit(alice)
    async with httpx.AsyncClient(base_url=site.url, trust_env=False) as nobody:
        for headers in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": "Basic eDp5"},
            {"Authorization": "Bearer"},
        ):
            for method, tail in CALLS:
                refused = await nobody.request(method, f"/api/tasks/{task['task_id']}{tail}", headers=headers)
                problem(refused, 401)
                assert refused.headers["www-authenticate"].startswith("Bearer")
            for path in ("/api/tasks", "/api/stats", "/api/dead-letters", "/metrics", "/api/stream?task=x"):
                problem(await nobody.get(path, headers=headers), 401)
        for path in ("/", "/healthz", "/readyz", "/api/openapi.json", "/static/stream.js"):
            assert (await nobody.get(path)).status_code in (200, 503)
        session = (await nobody.get("/api/session")).json()
        assert session == {"owner": None, "keys_required": True}


async def test_a_revoked_key_stops_working(alice: httpx.AsyncClient, desk: Desk) -> None:
    await submit(alice)
    [key] = await access.list_keys(desk.store)
    assert (key.owner, key.label) == ("alice", "test")
    _, other = await access.create_key(desk.store, "bob")
    assert await access.revoke_key(desk.store, key.key_id)
    assert not await access.revoke_key(desk.store, key.key_id)
    await until(lambda: _refused(alice), "the key to stop working")
    found = await access.check(desk.store, other)
    assert found is not None
    assert found.owner == "bob"
    assert await access.check(desk.store, other[:-1] + ("0" if other[-1] != "0" else "1")) is None


async def _refused(client: httpx.AsyncClient) -> bool:
    return (await client.get("/api/tasks")).status_code == 401


async def test_a_revoked_key_ends_its_open_streams(
    alice: httpx.AsyncClient, eve: httpx.AsyncClient, site: Site, desk: Desk
) -> None:
    """Also those that were opened with a session of the key, and those of several tasks; nobody else's."""
    mine, other = await submit(alice), await submit(eve)
    secret = alice.headers["authorization"].removeprefix("Bearer ")
    async with httpx.AsyncClient(base_url=site.url, trust_env=False, timeout=20) as browser:
        await browser.post("/api/session", json={"key": secret})
        async with (
            watching(alice, mine["task_id"]) as one,
            watching(browser, mine["task_id"]) as two,
            alice.stream("GET", f"/api/stream?task={mine['task_id']}") as many,
            watching(eve, other["task_id"]) as three,
        ):
            several = Reading(many)
            for reading in (one, two, several, three):
                await reading.until(b"pending")
            assert await access.revoke_key(desk.store, secret.split("_")[1])
            for reading in (one, two, several):
                await reading.rest(within=20)
            assert (await eve.post(f"/api/tasks/{other['task_id']}/cancel")).status_code == 200
            await three.until(b"event: cancelled")
        problem(await browser.get(f"/api/tasks/{mine['task_id']}/stream"), 401)


async def test_signing_out_ends_the_open_streams_of_the_session(
    alice: httpx.AsyncClient, site: Site, desk: Desk
) -> None:
    task = await submit(alice)
    secret = alice.headers["authorization"].removeprefix("Bearer ")
    async with httpx.AsyncClient(base_url=site.url, trust_env=False, timeout=20) as browser:
        await browser.post("/api/session", json={"key": secret})
        async with watching(browser, task["task_id"]) as session, watching(alice, task["task_id"]) as key:
            await session.until(b"pending")
            assert (await browser.delete("/api/session")).status_code == 204
            await session.rest(within=20)
            await alice.post(f"/api/tasks/{task['task_id']}/cancel")
            await key.until(b"event: cancelled")


async def test_the_first_key_ends_the_streams_of_those_who_have_none(client: httpx.AsyncClient, desk: Desk) -> None:
    task = await submit(client)
    async with watching(client, task["task_id"]) as reading:
        await reading.until(b"pending")
        await access.create_key(desk.store, "alice")
        await reading.rest(within=20)
    problem(await client.get(f"/api/tasks/{task['task_id']}/stream"), 401)


async def test_secrets_are_stored_hashed(desk: Desk) -> None:
    key_id, secret = await access.create_key(desk.store, "alice")
    raw = await desk.redis.hget(keys.key("keys"), key_id)
    assert secret.rsplit("_", 1)[1].encode() not in raw
    for bad in ("", "a:b", "a b", "x" * 65, "-a", "a\n"):
        with pytest.raises(ValueError):
            await access.create_key(desk.store, bad)


async def test_sign_in_and_out(alice: httpx.AsyncClient, site: Site, desk: Desk) -> None:
    secret = alice.headers["authorization"].removeprefix("Bearer ")
    task = await submit(alice)
    async with httpx.AsyncClient(base_url=site.url, trust_env=False) as browser:
        problem(await browser.post("/api/session", json={"key": "ub_00000000_" + "0" * 40}), 401)
        problem(await browser.post("/api/session", json={"key": secret, "x": 1}), 422)
        answer = await browser.post("/api/session", json={"key": secret})
        assert answer.json() == {"owner": "alice", "keys_required": True}
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert secret not in cookie
        token = browser.cookies["unbroken_session"]
        assert token.encode() not in b" ".join(await desk.redis.keys("*"))
        async with watching(browser, task["task_id"]) as reading:
            await reading.until(b"pending")
        url = f"/api/tasks/{task['task_id']}/cancel"
        foreign = [
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ]
        foreign += [{"Origin": "null"}, {"Origin": site.url, "Sec-Fetch-Site": "cross-site"}]
        for headers in foreign:
            problem(await browser.post(url, headers=headers), 403)
        assert (await browser.post(url, headers={"Origin": site.url})).status_code == 200
        assert (await browser.delete("/api/session")).status_code == 204
        assert (await browser.get("/api/session")).json()["owner"] is None
        browser.cookies.set("unbroken_session", token)
        problem(await browser.get("/api/tasks"), 401)


async def test_a_revoked_key_ends_its_sessions(alice: httpx.AsyncClient, site: Site, desk: Desk) -> None:
    secret = alice.headers["authorization"].removeprefix("Bearer ")
    await access.create_key(desk.store, "bob")
    async with httpx.AsyncClient(base_url=site.url, trust_env=False) as browser:
        await browser.post("/api/session", json={"key": secret})
        await access.revoke_key(desk.store, secret.split("_")[1])
        await until(lambda: _refused(browser), "the session to end")


async def test_on_loopback_a_foreign_page_or_name_is_refused(client: httpx.AsyncClient, desk: Desk) -> None:
    """DNS rebinding and cross-site posts: no keys protect us here."""
    task = await desk.submit()
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", "", "localhost@evil"):
        problem(await client.get("/api/tasks", headers={"Host": host}), 403)
    for host in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80", "127.9.9.9"):
        assert (await client.get("/api/tasks", headers={"Host": host})).status_code == 200
    foreign = [{"Origin": origin} for origin in ("http://evil.example", "http://[::1", "http://[x]", "//]", "null", "")]
    for headers in (*foreign, {"Sec-Fetch-Site": "cross-site"}):
        problem(await client.post(f"/api/tasks/{task.id}/cancel", headers=headers), 403)
        problem(await client.post("/api/tasks", json=GOOD, headers=headers), 403)


async def test_other_addresses_need_keys(desk: Desk, settings: Settings) -> None:
    open_to_all = settings.model_copy(update={"host": "0.0.0.0"})
    with pytest.raises(BadSetting, match="keys create"):
        await check(open_to_all)
    await check(open_to_all.model_copy(update={"insecure": True}))
    await check(settings)
    await access.create_key(desk.store, "alice")
    await check(open_to_all)


async def test_insecure_serves_everybody(desk: Desk, settings: Settings) -> None:
    with running(settings.model_copy(update={"host": "0.0.0.0", "insecure": True})) as site:
        async with httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
            answer = await client.get("/api/tasks", headers={"Host": "my.server.example"})
            assert answer.status_code == 200


async def test_a_redis_that_evicts_is_refused(desk: Desk, settings: Settings) -> None:
    await desk.redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(BadSetting, match="evict"):
            await check(settings)
        await check(settings.model_copy(update={"force": True}))
    finally:
        await desk.redis.config_set("maxmemory-policy", "noeviction")


async def test_a_foreign_cursor_shows_nothing_foreign(
    alice: httpx.AsyncClient, eve: httpx.AsyncClient, desk: Desk
) -> None:
    secret = await submit(alice)
    mine = await submit(eve)
    await eve.post(f"/api/tasks/{mine['task_id']}/cancel")
    raw = await whole(eve, mine["task_id"], secret["last_event_id"])
    assert raw.count(b"event: cancelled") == 1
    assert secret["task_id"].encode() not in raw
