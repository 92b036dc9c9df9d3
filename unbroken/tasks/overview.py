"""Numbers over many tasks: for one owner, and for the operator (without names of owners)."""

from __future__ import annotations

from typing import Any

from unbroken.tasks import keys
from unbroken.tasks.connection import translated
from unbroken.tasks.state import Reason, State
from unbroken.tasks.store import Store

MINUTES = 60
EVERYBODY = ""
"""The tally over all owners; no owner is called so."""


async def owner_stats(store: Store, owner: str) -> dict[str, Any]:
    """queue, in_flight, states, last_hour, oldest_pending_s (seconds; None without pending tasks)."""
    now = await store.time_ms()
    with translated():
        async with store.redis.pipeline(transaction=False) as pipe:
            for state in State:
                pipe.zcard(keys.key("list", state.value, owner))
            pipe.zcard(keys.key("ready", owner))
            pipe.zcard(keys.key("leases", owner))
            pipe.zrange(keys.key("list", "pending", owner), 0, 0, withscores=True)
            _ask_tally(pipe, owner, now)
            replies = await pipe.execute()
    states = dict(zip((state.value for state in State), replies, strict=False))
    ready, leases, oldest = replies[len(State) : len(State) + 3]
    return {
        "queue": {"ready": ready, "delayed": max(0, states["pending"] + states["recovering"] - ready)},
        "queue_depth": states["pending"] + states["recovering"],
        "in_flight": leases,
        "states": states,
        "last_hour": _hour(replies[len(State) + 3 :]),
        "oldest_pending_s": round(max(0.0, now / 1000 - oldest[0][1] / 1e6), 3) if oldest else None,
    }


async def totals(store: Store) -> dict[str, Any]:
    """The same over all owners: sizes of the indexes, paused tasks by reason, the last hour, age of the first task in
    the queue, and what only grows (`counters`)."""
    now = await store.time_ms()
    indexes = ("ready", "delayed", "leases", "paused", "dead", "done")
    with translated():
        async with store.redis.pipeline(transaction=False) as pipe:
            for index in indexes:
                pipe.zcard(keys.key(index))
            pipe.zcount(keys.key("leases"), "-inf", f"({now}")
            pipe.zrange(keys.key("ready"), 0, 0)
            for reason in Reason:
                pipe.zcard(keys.key("paused", reason.value))
            pipe.hgetall(keys.key("counters"))
            _ask_tally(pipe, EVERYBODY, now)
            replies = await pipe.execute()
        first = replies[len(indexes) + 1]
        paused = replies[len(indexes) + 2 :][: len(Reason)]
        counters, *tally = replies[len(indexes) + 2 + len(Reason) :]
        created = await store.redis.hget(keys.key("task", first[0].decode()), "created") if first else None
    sizes = dict(zip(indexes, replies, strict=False))
    return {
        "indexes": sizes,
        "leases_overdue": replies[len(indexes)],
        "paused": dict(zip((reason.value for reason in Reason), paused, strict=True)),
        "counters": {name.decode(): int(count) for name, count in counters.items()},
        "last_hour": _hour(tally),
        "oldest_ready_s": max(0.0, (now - int(created)) / 1000) if created else 0.0,
    }


def _ask_tally(pipe: Any, owner: str, now: int) -> None:
    minute = now // 60_000
    for at in range(minute - MINUTES + 1, minute + 1):
        pipe.hmget(keys.key("tally", owner, str(at)), "completed", "failed")


def _hour(replies: list[Any]) -> dict[str, Any]:
    done = sum(int(completed or 0) for completed, _ in replies)
    failed = sum(int(failed or 0) for _, failed in replies)
    ratio = round(failed / (done + failed), 6) if done + failed else None
    return {"successes": done, "failures": failed, "failure_ratio": ratio}
