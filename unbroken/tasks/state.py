"""The states of a task: the specification. Lua enforces it, and tests/store/test_parity.py drives every
(state, operation) pair through a real Redis and compares with this table.

Everything that decides whether an operation is allowed stands in this file; nothing here knows Redis.

              claim                    complete
    pending ────────▶ processing ───────────────▶ completed
       ▲               │  ▲   │
       │    transient, │  │   └─ fail (permanent, or budget spent) ─▶ failed ── replay ─▶ recovering
    create  lost,      ▼  │ claim
            SIGTERM  recovering ◀── recover ── paused ◀── pause, lost (manual, or crash budget spent), timeout
    any state that is not terminal ── cancel ──▶ cancelled
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a task is. The words are part of the contract."""

    PENDING = "pending"
    PROCESSING = "processing"
    PAUSED = "paused"
    RECOVERING = "recovering"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a task is paused."""

    WORKER_LOST = "worker_lost"
    TIMEOUT = "timeout"
    REQUESTED = "requested"
    CHECKPOINT_FAILED = "checkpoint_failed"


class Op(StrEnum):
    """What can be asked of a task. The first row is asked by workers under their lease, `lost` by the reaper."""

    CLAIM = "claim"
    COMPLETE = "complete"
    FAIL_RETRY = "fail_retry"
    FAIL_DEAD = "fail_dead"
    RELEASE = "release"
    PARK = "park"
    LOST_AUTO = "lost_auto"
    LOST_MANUAL = "lost_manual"
    RECOVER = "recover"
    PAUSE = "pause"
    CANCEL = "cancel"
    REPLAY = "replay"
    PURGE = "purge"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
LIVE = frozenset(State) - TERMINAL

# The index (a zset) in which a task of this state stands. pending and recovering stand in `delayed` while they wait
# for their time.
INDEX: dict[State, tuple[str, ...]] = {
    State.PENDING: ("ready", "delayed"),
    State.RECOVERING: ("ready", "delayed"),
    State.PROCESSING: ("leases",),
    State.PAUSED: ("paused",),
    State.FAILED: ("dead",),
    State.COMPLETED: ("done",),
    State.CANCELLED: ("done",),
}

# Every legal move. A pair that is not here is refused and changes nothing. Purge leads nowhere: None.
MOVES: dict[tuple[State, Op], State | None] = {
    (State.PENDING, Op.CLAIM): State.PROCESSING,
    (State.RECOVERING, Op.CLAIM): State.PROCESSING,
    (State.PROCESSING, Op.COMPLETE): State.COMPLETED,
    (State.PROCESSING, Op.FAIL_RETRY): State.RECOVERING,
    (State.PROCESSING, Op.FAIL_DEAD): State.FAILED,
    (State.PROCESSING, Op.RELEASE): State.RECOVERING,
    (State.PROCESSING, Op.PARK): State.PAUSED,
    (State.PROCESSING, Op.LOST_AUTO): State.RECOVERING,
    (State.PROCESSING, Op.LOST_MANUAL): State.PAUSED,
    (State.PAUSED, Op.RECOVER): State.RECOVERING,
    (State.PENDING, Op.PAUSE): State.PAUSED,
    (State.RECOVERING, Op.PAUSE): State.PAUSED,
    # asked of a running task, pause is a wish: its worker saves a checkpoint and then parks the task
    (State.PROCESSING, Op.PAUSE): State.PROCESSING,
    **{(state, Op.CANCEL): State.CANCELLED for state in LIVE},
    (State.FAILED, Op.REPLAY): State.RECOVERING,
    **{(state, Op.PURGE): None for state in TERMINAL},
}

# Asked again, these answer as the first time and change nothing (G11).
REPEATS: dict[Op, frozenset[State]] = {
    Op.PAUSE: frozenset({State.PAUSED}),
    Op.CANCEL: frozenset({State.CANCELLED}),
}


def sources(op: Op) -> tuple[State, ...]:
    """The states from which `op` is allowed, in the order of State."""
    return tuple(state for state in State if (state, op) in MOVES)


def after(state: State, op: Op) -> State | None:
    """The state that follows, or None after a purge. Raises ValueError for an illegal pair."""
    try:
        return MOVES[state, op]
    except KeyError:
        raise ValueError(f"{op} is not allowed while {state}") from None
