"""Large states, to a file and back, without a second copy of them in memory.

The same format as codec.seal: msgpack, compressed or not, a digest of the bytes as stored. Blocking; call it in a
thread."""

from __future__ import annotations

import hashlib
import mmap
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import msgpack
import zstandard

from unbroken.tasks import codec
from unbroken.tasks.errors import Corrupt

LARGE = 512 * 1024  # bytes; from here on a state takes this way
PIECE = 1024 * 1024
MANY = 65_536  # elements of one list


def is_large(value: Any, depth: int = 3) -> bool:
    """A quick look, not a measurement: is there something big near the top of it?"""
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return len(value) > LARGE
    if depth and isinstance(value, Mapping):
        return len(value) > MANY or any(is_large(part, depth - 1) for part in value.values())
    if depth and isinstance(value, (list, tuple)):
        return len(value) > MANY or (len(value) <= 1_024 and any(is_large(part, depth - 1) for part in value))
    return False


class _Sink(Protocol):
    def write(self, data: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Spooled:
    """A sealed state in a file. `sealed.data` is empty, `sealed.stored` its size."""

    path: Path
    sealed: codec.Sealed


class _Hashed:
    """A file that knows its digest and refuses to grow beyond a limit."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit = file, limit
        self.size = 0
        self.hash = hashlib.sha256()

    def write(self, data: Any) -> int:
        """As a file does."""
        self.size += len(data)
        if self.size > self._limit:
            raise ValueError(f"a state above the limit of {self._limit} bytes")
        self.hash.update(data)
        return self._file.write(data)


class _Counted:
    """Counts what goes into another file."""

    def __init__(self, below: _Sink, limit: int) -> None:
        self._below, self._limit = below, limit
        self.size = 0

    def write(self, data: Any) -> None:
        """As a file does."""
        self.size += len(data)
        if self.size > self._limit:
            raise ValueError(f"a state above the limit of {self._limit} bytes")
        self._below.write(data)


@contextmanager
def spooled(state: Mapping[str, Any], *, schema: int, limit: int, folder: Path | None = None) -> Iterator[Spooled]:
    """Write a state to a file of its own, which is gone afterwards. Raises ValueError above `limit` bytes, and what
    msgpack raises for values that it cannot carry."""
    with tempfile.NamedTemporaryFile(prefix="ub-state-", dir=folder) as file:
        below = _Hashed(file, limit + limit // 16 + PIECE)
        squeezer: Any = zstandard.ZstdCompressor(level=1)  # it wants a whole IO, and uses write()
        with squeezer.stream_writer(below, closefd=False) as squeezed:
            counted = _Counted(squeezed, limit)
            _write(state, counted, msgpack.Packer(use_bin_type=True))
        file.flush()
        sealed = codec.Sealed("zstd", schema, counted.size, below.hash.hexdigest(), b"", below.size)
        yield Spooled(Path(file.name), sealed)


def _write(value: Any, out: _Sink, packer: Any) -> None:
    """As msgpack writes it, but the large parts piece by piece."""
    if isinstance(value, Mapping):
        out.write(packer.pack_map_header(len(value)))
        for name, part in value.items():
            out.write(packer.pack(name))
            _write(part, out, packer)
    elif isinstance(value, (list, tuple)) and len(value) <= 1_024:
        out.write(packer.pack_array_header(len(value)))
        for part in value:
            _write(part, out, packer)
    elif isinstance(value, (bytes, bytearray, memoryview)) and len(value) > LARGE:
        raw = memoryview(value).cast("B")
        if len(raw) >= 2**32:
            raise ValueError("one value of 4 GiB or more")
        out.write(b"\xc6" + len(raw).to_bytes(4, "big"))  # bin 32, as the specification of msgpack has it
        for at in range(0, len(raw), PIECE):
            out.write(raw[at : at + PIECE])
    else:
        out.write(packer.pack(value))


def read(path: Path, expected: codec.Sealed, *, schema: int, limit: int) -> dict[str, Any]:
    """The state in a file. Raises Corrupt as codec.unseal does."""
    if expected.schema != schema:
        raise Corrupt(f"state of schema {expected.schema}, this version reads {schema}")
    if expected.raw > limit:
        raise Corrupt(f"{expected.raw} bytes is more than the limit of {limit}")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != expected.sha256:
            raise Corrupt("digest does not match")
        file.seek(0)
        if expected.codec == "none":
            return _decode(file, expected.raw, limit)
        if expected.codec != "zstd":
            raise Corrupt(f"unknown codec {expected.codec!r}")
        with tempfile.TemporaryFile(dir=path.parent) as plain:
            _unpack(file, plain, expected.raw)
            return _decode(plain, expected.raw, limit)


def _unpack(file: IO[bytes], plain: IO[bytes], raw: int) -> None:
    size = 0
    try:
        for piece in zstandard.ZstdDecompressor().read_to_iter(file, write_size=PIECE):
            size += len(piece)
            if size > raw:  # a frame may lie about its size; never make room for more than was declared
                raise Corrupt("more bytes than declared")
            plain.write(piece)
    except zstandard.ZstdError as error:
        raise Corrupt(f"does not decompress: {error}") from error
    plain.flush()


def _decode(file: IO[bytes], raw: int, limit: int) -> dict[str, Any]:
    file.seek(0, 2)
    if file.tell() != raw or not raw:
        raise Corrupt("other length than declared")
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        state = codec.unpack(mapped, limit=limit)
    if not isinstance(state, dict):
        raise Corrupt("a state is a map")
    return state
