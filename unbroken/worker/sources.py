"""Where updates come from: an async generator as it is, or a plain one in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

from unbroken.tasks.kind import Update


class End(Exception):
    """The generator has ended."""


class Source(Protocol):
    """One update after the other."""

    steady: bool
    """A step that has begun runs to its end, whatever is asked."""

    async def pull(self) -> Update:
        """The next update. Raises End."""
        ...

    async def rest(self) -> Update | None:
        """After a cancelled pull: what it was about to give, if that cannot be taken back."""
        ...

    async def close(self) -> None:
        """Close the generator; what it holds open is closed when this returns."""
        ...


class AsyncSource:
    """An async generator."""

    steady = False

    def __init__(self, stream: AsyncIterator[Update]) -> None:
        self._stream = stream

    async def pull(self) -> Update:
        """See Source."""
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            raise End from None
        except (SystemExit, KeyboardInterrupt) as error:  # a kind must not end the worker
            raise RuntimeError(f"the kind raised {type(error).__name__}") from error

    async def rest(self) -> Update | None:
        """See Source. A cancelled generator gives nothing more."""
        return None

    async def close(self) -> None:
        """See Source."""
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class ThreadSource:
    """A plain generator. Each step runs in the thread, so a kind that computes for long blocks nobody; a step that
    never ends cannot be stopped, only left behind: the thread is a daemon and dies with the process."""

    steady = True

    def __init__(self, stream: Iterator[Update], name: str) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._step: asyncio.Future[Any] | None = None

    async def pull(self) -> Update:
        """See Source."""
        self._step = self._ask(self._next)
        # shielded: a step cannot be cancelled, and what it gives is still wanted by `close`
        update: Update = await asyncio.shield(self._step)
        self._step = None
        return update

    async def rest(self) -> Update | None:
        """See Source. The step that was under way is waited for."""
        return await asyncio.shield(self._step) if self._step is not None else None

    async def close(self) -> None:
        """See Source. Waits for a step that is under way."""
        close = getattr(self._stream, "close", None)
        closed = self._ask(close) if close is not None and self._thread.is_alive() else None
        self._jobs.put(None)
        if closed is not None:
            await asyncio.shield(closed)

    def _next(self) -> Update:
        try:
            return next(self._stream)
        except StopIteration:
            raise End from None

    def _ask(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(_seen)
        self._jobs.put((job, future))
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as raised:
                error = raised
            try:
                self._loop.call_soon_threadsafe(_answer, future, result, error)
            except RuntimeError:  # the loop has ended
                return


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, (KeyboardInterrupt, SystemExit, StopIteration)):
        future.set_exception(RuntimeError(f"the kind raised {type(error).__name__}"))
    else:
        future.set_exception(error)


def _seen(future: asyncio.Future[Any]) -> None:
    """An error that nobody waits for any more is not worth asyncio's complaint."""
    if not future.cancelled():
        future.exception()


def source(stream: object, name: str) -> Source:
    """The source for what a kind's `run` gave. Raises TypeError for anything else."""
    if isinstance(stream, AsyncIterator):
        return AsyncSource(stream)
    if isinstance(stream, Iterator):
        return ThreadSource(stream, name)
    if inspect.iscoroutine(stream):
        stream.close()
    raise TypeError(f"run() gave {type(stream).__name__}; it must be a generator: use yield in it")
