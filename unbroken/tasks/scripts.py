"""The scripts: read from files, put together with what they include, called by their digest.

A script's header names what it includes (`-- include: base queue`) and its flags (`-- flags: allow-oom`); the
shebang that Redis wants is made from that. The typed doors are the methods of store.py and holder.py: one each."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "lua"
_INCLUDE = re.compile(r"^-- include: (.+)$", re.MULTILINE)
_FLAGS = re.compile(r"^-- flags: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One operation. `sha` is what EVALSHA takes."""

    name: str
    source: str
    sha: str


def names() -> list[str]:
    """All scripts, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.lua"))


@cache
def script(name: str, *, audit_max: int = 100_000, clock: str | None = None) -> Script:
    """Put a script together. `clock` is for tests: time is then what that key holds (in ms), and only then; the
    production build asks Redis' own clock."""
    body = (FOLDER / f"{name}.lua").read_text()
    include = _INCLUDE.search(body)
    if include is None:
        raise ValueError(f"{name}.lua does not say what it includes")
    flags = _FLAGS.search(body)
    parts = [f"#!lua flags={flags.group(1)}" if flags else "#!lua"]
    parts += [(FOLDER / "lib" / f"{part}.lua").read_text() for part in include.group(1).split()]
    source = "\n".join([*parts, body])
    source = source.replace("local AUDIT_MAX = 100000", f"local AUDIT_MAX = {audit_max:d}")
    if clock is not None:
        source = source.replace("local CLOCK = false", f"local CLOCK = '{clock}'")
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
