"""Names: keys, channels, ids. Every key of the model is made here or, from the same prefix, by the scripts.

key (prefix `ub:{s0}:`)      type    lifetime
task:<id>                    hash    record, with a short title; until `done`/`dead` is swept
in:<id>                      string  input (msgpack); with the task
ev:<id>                      stream  the log, ids <epoch>-<n>; fields e name, d data, x aux; with the task
text:<id>                    string  all text so far; with the task
marks:<id>                   list    where a replay may be cut: "event-id bytes characters" every 8 KiB; with the task
hist:<id>                    list    changes of state: "event-id name data", the newest 500; with the task
items:<id>                   hash    batch: index -> JSON of the item event; with the task
ckpt:<id>                    hash    a.* newest, b.* previous checkpoint; with the task, 24 h after completion
ready delayed leases paused dead done broken          zset  indexes (lua/lib/queue.lua)
ready:<owner> leases:<owner> turns                    zset  the same by owner, and whose turn it is
list:all:<owner> list:<state>:<owner>                 zset  id -> creation, for lists
paused:<reason>                                       zset  paused tasks by reason, to be counted
group:<owner>:<fingerprint> groups:<owner>            zset  dead letters by error
owners                       set     owners that have tasks
cache:<owner>:<hash>         string  the finished task with this kind and input; as long as its result
hooks                        zset    callbacks that are due: <id>:<generation> -> ms; with the record
idem:<owner>:<hash>          hash    idempotency: digest, task; as long as the task, 24 h beyond its end
gone:<hash>                  string  a delete that was done, to answer its repeat; a minute, with a client's key 24 h
worker:<id>:<slot>           hash    last claim of a worker's slot, to answer a repeat; a few leases
tally:<owner>:<minute>       hash    completed and failed; 2 h
bucket:<name>                hash    token buckets; until full again
times:<what>                 list    when the last so many were admitted; a minute
counters                     hash    what only grows, for the operator
seen grace                   string  the reaper's memory; a day, two leases
audit                        stream  capped
keys                         hash    API keys, hashed; until revoked
feed:<id> workers            channels
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TASK_ID = re.compile(r"^s(\d{1,3})-[0-9a-hjkmnp-tv-z]{26}\Z", re.ASCII)
_OWNER = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z", re.ASCII)


def prefix(shard: int = 0) -> str:
    """All keys of a shard share the hash tag, so that each script works on one node of a cluster."""
    return f"ub:{{s{shard}}}:"


def key(what: str, *parts: str, shard: int = 0) -> str:
    """`ub:{s0}:what:part:part`."""
    return prefix(shard) + ":".join((what, *parts))


def new_task_id(shard: int = 0) -> str:
    """A fresh id: the shard, 48 bits of time (for the eye only), 80 random bits, in Crockford's base 32."""
    number = (int(time.time() * 1000) << 80) | secrets.randbits(80)
    letters = [_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5)]
    return f"s{shard}-{''.join(letters)}"


def is_task_id(raw: str) -> bool:
    """Is this the form of an id? Anything else never reaches Redis."""
    return _TASK_ID.match(raw) is not None


def is_owner(raw: str) -> bool:
    """Owners' names become parts of keys, so their letters are few and a colon is not among them."""
    return _OWNER.match(raw) is not None


def idem(owner: str, given: str) -> str:
    """The part of the key after `idem:`; hashed, since a client chooses it."""
    return f"{owner}:{hashlib.sha256(given.encode()).hexdigest()[:32]}"
