"""`unbroken up` at work: parts come up in order, are looked after, and go down in the opposite order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence

from unbroken.cli.child import Child, Part
from unbroken.cli.logs import Output

# One Ctrl-C may arrive twice: from the terminal, and forwarded by what started us (`uv run`).
ONE_WISH_S = 1.0


class Supervisor:
    """stages: parts that may start together, in order; a stage starts when the one before is ready. They
    stop one by one in the opposite order: workers hand their tasks over while the server and the database
    still run."""

    def __init__(self, stages: Sequence[Sequence[Part]], output: Output) -> None:
        self._stages = [[Child(part, output) for part in stage] for stage in stages]
        self._output = output
        self._asked = asyncio.Event()
        self._asked_at = 0.0

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Run until SIGINT, SIGTERM or SIGHUP. `on_ready` is called once, when everything works.

        Raises CannotStart when a part does not come up; everything is stopped then, too."""
        self._listen()
        up = asyncio.create_task(self._up())
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({up, asked}, return_when=asyncio.FIRST_COMPLETED)
            if up.done():
                up.result()
                on_ready()
                await asked
        finally:
            for task in (up, asked):
                task.cancel()
            await asyncio.gather(up, asked, return_exceptions=True)
            await self._down()

    async def _up(self) -> None:
        for stage in self._stages:
            for child in stage:
                await child.start()
            await asyncio.gather(*(child.until_ready() for child in stage))

    async def _down(self) -> None:
        for stage in reversed(self._stages):
            await asyncio.gather(*(child.stop() for child in stage))

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup has SIGHUP ignored on purpose
            if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
                loop.add_signal_handler(number, self._stop_asked, number)

    def _stop_asked(self, number: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if not self._asked.is_set():
            self._asked.set()
            self._asked_at = now
            self._output.say("stopping: workers hand over their tasks (once more to stop at once)")
            return
        if now - self._asked_at < ONE_WISH_S:
            return
        for stage in self._stages:
            for child in stage:
                child.stopping = True
                with contextlib.suppress(ProcessLookupError):
                    child.signal(signal.SIGKILL)
