"""msgpack with limits, and the envelope of a checkpoint. Pure. Decoding never runs code (G19): no pickle, no
extension types."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import msgpack
import zstandard

from unbroken.tasks.errors import Corrupt

VERSION = 1
COMPRESS_ABOVE = 512  # bytes; below, a frame header costs more than it saves


def pack(value: Any) -> bytes:
    """Encode. Raises ValueError, TypeError or OverflowError for what msgpack cannot carry."""
    return bytes(msgpack.packb(value, use_bin_type=True))


def _no_extensions(code: int, data: bytes) -> Any:
    raise Corrupt(f"msgpack extension type {code} is not accepted")


def unpack(data: bytes | mmap, *, limit: int) -> Any:
    """Decode at most `limit` bytes. Raises Corrupt."""
    if len(data) > limit:
        raise Corrupt(f"{len(data)} bytes is more than the limit of {limit}")
    try:
        # the parts' own limits follow from the length of `data`, which is bounded above
        return msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_no_extensions)
    except Corrupt:
        raise
    except Exception as error:  # msgpack raises many kinds; all mean the same here
        raise Corrupt(f"not msgpack: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Sealed:
    """A checkpoint's state as bytes, and what is needed to trust them again.

    raw: bytes before compression. sha256: of `data` as stored, so that it is checked before anything is decoded.
    stored: its size, where the data itself is elsewhere."""

    codec: str
    schema: int
    raw: int
    sha256: str
    data: bytes
    stored: int | None = None

    @property
    def size(self) -> int:
        """Bytes as stored."""
        return len(self.data) if self.stored is None else self.stored


def seal(state: Mapping[str, Any], *, schema: int, limit: int) -> Sealed:
    """Encode a state; compressed when that helps. Raises ValueError when it is larger than `limit` bytes."""
    raw = pack(dict(state))
    if len(raw) > limit:
        raise ValueError(f"a state of {len(raw)} bytes is above the limit of {limit}")
    data, codec = raw, "none"
    if len(raw) > COMPRESS_ABOVE:
        small = zstandard.ZstdCompressor(level=1).compress(raw)
        if len(small) < len(raw) * 0.9:
            data, codec = small, "zstd"
    return Sealed(codec, schema, len(raw), hashlib.sha256(data).hexdigest(), data)


def unseal(sealed: Sealed, *, schema: int, limit: int) -> dict[str, Any]:
    """Decode a state. Raises Corrupt with the reason: digest, schema, size, codec or content."""
    if sealed.schema != schema:
        raise Corrupt(f"state of schema {sealed.schema}, this version reads {schema}")
    if sealed.raw > limit:
        raise Corrupt(f"{sealed.raw} bytes is more than the limit of {limit}")
    if hashlib.sha256(sealed.data).hexdigest() != sealed.sha256:
        raise Corrupt("digest does not match")
    data = sealed.data
    if sealed.codec == "zstd":
        try:
            # a frame may lie about its size; never make room for more than was declared
            if zstandard.frame_content_size(data) != sealed.raw:
                raise Corrupt("compressed frame of another length than declared")
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=sealed.raw)
        except zstandard.ZstdError as error:
            raise Corrupt(f"does not decompress: {error}") from error
    elif sealed.codec != "none":
        raise Corrupt(f"unknown codec {sealed.codec!r}")
    if len(data) != sealed.raw:
        raise Corrupt("other length than declared")
    state = unpack(data, limit=limit)
    if not isinstance(state, dict):
        raise Corrupt("a state is a map")
    return state
