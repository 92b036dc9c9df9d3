"""The result as bytes: what the worker hashes for `done` and what the server serves are the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def encode_batch(items: Mapping[int, bytes]) -> bytes:
    """`{"items":[...]}` in order of the index, from the stored JSON of each item event
    (`{"index", "ok", "result"}` or `{"index", "ok", "error"}`)."""
    return b'{"items":[' + b",".join(items[index] for index in sorted(items)) + b"]}"
