"""A server and the command line beside it, both in this process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from tests.server.site import Site
from unbroken.cli import main


@dataclass(frozen=True)
class Said:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Terminal:
    """Runs commands against a site."""

    site: Site
    capture: pytest.CaptureFixture[str]

    async def __call__(self, *arguments: str, code: int = 0) -> Said:
        """One command, which must end with `code`."""
        self.capture.readouterr()
        ended = await asyncio.to_thread(main.run, list(arguments))
        said = self.capture.readouterr()
        assert ended == code, (ended, said.out, said.err)
        assert "Traceback" not in said.err
        return Said(ended, said.out, said.err)
