"""Numbers over many tasks: for one owner, and for the operator (without names of owners).

What waits is what could start now; a task that is planned for later, or that waits for its next try, is counted apart
(`delayed`) until it is due, and its waiting begins then."""

from __future__ import annotations

from typing import Any

from unbroken.tasks import keys
from unbroken.tasks.connection import translated
from unbroken.tasks.state import Reason, State
from unbroken.tasks.store import Store

MINUTES = 60
LOOKED_AT = 20  # tasks of which the one that has waited longest is told
EVERYBODY = ""
"""The tally over all owners; no owner is called so."""


async def owner_stats(store: Store, owner: str) -> dict[str, Any]:
    """queue, in_flight, states, last_hour, oldest_pending_s (seconds since it was due; None where nothing waits)."""
    now = await store.time_ms()
    with translated():
        async with store.redis.pipeline(transaction=False) as pipe:
            for state in State:
                pipe.zcard(keys.key("list", state.value, owner))
            pipe.zcard(keys.key("ready", owner))
            pipe.zcard(keys.key("leases", owner))
            pipe.zrange(keys.key("ready", owner), 0, LOOKED_AT - 1)
            pipe.zrange(keys.key("list", "pending", owner), 0, LOOKED_AT - 1)
            _ask_tally(pipe, owner, now)
            replies = await pipe.execute()
    states = dict(zip((state.value for state in State), replies, strict=False))
    ready, leases, first, oldest = replies[len(State) : len(State) + 4]
    waited = await _longest_wait(store, [*first, *oldest], now)
    return {
        "queue": {"ready": ready, "delayed": max(0, states["pending"] + states["recovering"] - ready)},
        "queue_depth": ready,
        "in_flight": leases,
        "states": states,
        "last_hour": _hour(replies[len(State) + 4 :]),
        "oldest_pending_s": waited,
    }


async def totals(store: Store) -> dict[str, Any]:
    """The same over all owners: sizes of the indexes, paused tasks by reason, the last hour, how long the first in the
    queue have waited, and what only grows (`counters`)."""
    now = await store.time_ms()
    indexes = ("ready", "delayed", "leases", "paused", "dead", "done")
    with translated():
        async with store.redis.pipeline(transaction=False) as pipe:
            for index in indexes:
                pipe.zcard(keys.key(index))
            pipe.zcount(keys.key("leases"), "-inf", f"({now}")
            pipe.zrange(keys.key("ready"), 0, LOOKED_AT - 1)
            for reason in Reason:
                pipe.zcard(keys.key("paused", reason.value))
            pipe.hgetall(keys.key("counters"))
            _ask_tally(pipe, EVERYBODY, now)
            replies = await pipe.execute()
        first = replies[len(indexes) + 1]
        paused = replies[len(indexes) + 2 :][: len(Reason)]
        counters, *tally = replies[len(indexes) + 2 + len(Reason) :]
    waited = await _longest_wait(store, first, now)
    sizes = dict(zip(indexes, replies, strict=False))
    return {
        "indexes": sizes,
        "leases_overdue": replies[len(indexes)],
        "paused": dict(zip((reason.value for reason in Reason), paused, strict=True)),
        "counters": {name.decode(): int(count) for name, count in counters.items()},
        "last_hour": _hour(tally),
        "oldest_ready_s": waited or 0.0,
    }


async def _longest_wait(store: Store, ids: list[bytes], now: int) -> float | None:
    """Seconds since the first of these tasks was due; None when none is. A priority is a head start of minutes, so the
    one that has waited longest need not stand first: some behind it are looked at, too."""
    with translated():
        async with store.redis.pipeline(transaction=False) as pipe:
            for task_id in dict.fromkeys(ids):
                pipe.hmget(keys.key("task", task_id.decode()), "state", "created", "updated", "retry_at")
            records = await pipe.execute() if ids else []
    waits = []
    for state, created, updated, due in records:
        if state in (b"pending", b"recovering"):
            since = max(int((created if state == b"pending" else updated) or 0), int(due or 0))
            waits += [(now - since) / 1000] if since <= now else []
    return round(max(waits), 3) if waits else None


def _ask_tally(pipe: Any, owner: str, now: int) -> None:
    minute = now // 60_000
    for at in range(minute - MINUTES + 1, minute + 1):
        pipe.hmget(keys.key("tally", owner, str(at)), "completed", "failed")


def _hour(replies: list[Any]) -> dict[str, Any]:
    done = sum(int(completed or 0) for completed, _ in replies)
    failed = sum(int(failed or 0) for _, failed in replies)
    ratio = round(failed / (done + failed), 6) if done + failed else None
    return {"successes": done, "failures": failed, "failure_ratio": ratio}
