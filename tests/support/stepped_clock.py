"""A database whose wall clock a test sets forward and back, as NTP or a restored machine does."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from tests.support.valkey import Valkey

SOURCE = Path(__file__).with_suffix(".c")


class SteppedClock:
    """The clock: a small C library in `folder` that the server is started with, and the number that it adds."""

    def __init__(self, folder: Path) -> None:
        self._library, self._by = folder / "stepped_clock.so", folder / "by"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE)], check=True)
        self.set(0)

    def set(self, seconds: int) -> None:
        """So many seconds off from now on."""
        with self._by.open("r+b" if self._by.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))

    def valkey(self) -> Valkey:
        """A server that goes by it."""
        return Valkey(aof=True, environment={"LD_PRELOAD": str(self._library), "SET_CLOCK_BY": str(self._by)})
