"""Events out of an upstream's byte stream. Pure.

On bytes, line by line: a character that lies across two network reads stays whole, and only CR and LF end a
line (a text splitter would also break JSON at U+2028 and others)."""

from __future__ import annotations

from collections.abc import Iterator

from unbroken.tasks.errors import Transient

EVENT_MAX = 8 << 20  # bytes; no honest event is larger


class Events:
    """Feed it bytes, get the data of every event that is complete."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[str] = []

    def feed(self, read: bytes) -> Iterator[str]:
        """The data of the events that `read` completes. Raises Transient for an event without end."""
        self._rest += read
        if len(self._rest) > EVENT_MAX:
            raise Transient("upstream_garbled", f"The model's server sent an event of over {EVENT_MAX} bytes.")
        *lines, rest = bytes(self._rest).replace(b"\r\n", b"\n").split(b"\n")
        if rest.endswith(b"\r"):  # perhaps half of a CRLF
            rest, carry = rest[:-1], b"\r"
        else:
            carry = b""
        *more, rest = rest.split(b"\r")
        for line in (part for whole in (*lines, *more) for part in whole.split(b"\r")):
            yield from self._line(line)
        self._rest = bytearray(rest + carry)

    def end(self) -> Iterator[str]:
        """What is left when the stream has ended: some servers leave out the last empty line."""
        yield from self._line(bytes(self._rest).rstrip(b"\r"))
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[str]:
        if not line:
            if self._data:
                yield "\n".join(self._data)
            self._data = []
        elif line.startswith(b"data:"):
            self._data.append(line[5:].decode("utf-8", "replace").removeprefix(" "))
