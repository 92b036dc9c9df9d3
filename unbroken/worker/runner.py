"""One claimed task, from the claim to the answer that ends it: completed, failed, given back, or lost."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import ValidationError

from unbroken.tasks import codec
from unbroken.tasks.connection import Calls
from unbroken.tasks.errors import Corrupt, LeaseLost, Permanent, StoreUnavailable
from unbroken.tasks.holder import INPUT_LIMIT, Broken, Holder, WentBack
from unbroken.tasks.kind import Kind
from unbroken.tasks.lease import Claimed, Last
from unbroken.tasks.objects import Objects
from unbroken.tasks.settings import Settings
from unbroken.worker.backends.base import Backend
from unbroken.worker.context import Context, ModelLimits
from unbroken.worker.door import whole
from unbroken.worker.driver import Driver, Why
from unbroken.worker.ending import Result, result_of
from unbroken.worker.failures import understood
from unbroken.worker.heartbeat import Heart
from unbroken.worker.pacing import retry_delay
from unbroken.worker.patience import Absence
from unbroken.worker.pump import Pump
from unbroken.worker.resume import NothingToTrust, Resume, load
from unbroken.worker.saver import Saver, SavingFailed
from unbroken.worker.sources import source
from unbroken.worker.writer import Writer

log = logging.getLogger("unbroken.worker.runner")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tools:
    """What all runs of a process share."""

    settings: Settings
    calls: Calls
    holder: Holder
    pump: Pump
    heart: Heart
    backend: Backend
    kinds: dict[str, Kind]
    objects: Objects
    absence: Absence = field(default_factory=Absence)


class Runner:
    """Runs one task. Every way out gives an answer to Redis, or leaves the task to the lease."""

    def __init__(self, claimed: Claimed, tools: Tools) -> None:
        self._claimed, self._tools = claimed, tools
        self.lease = claimed.lease
        self.task_id = claimed.lease.task_id
        self._kind = claimed.text("kind")
        self._loop = asyncio.get_running_loop()
        self._why: Why | None = None
        self._driver: Driver | None = None
        self._writer: Writer | None = None
        self._context: Context | None = None
        self._given_up = False
        self._watch: set[asyncio.TimerHandle] = set()

    # asked from outside

    def stop(self, why: Why) -> None:
        """Stop in order (a pause, a shutdown, a timeout), or at once (LOST, BROKEN). May be asked at any time,
        repeatedly."""
        if self._why is None or why is Why.LOST or (why is Why.BROKEN and self._why is not Why.LOST):
            self._why = why
        if why is Why.LOST and self._writer is not None:
            self._writer.fail(LeaseLost())
        if self._driver is not None:
            self._driver.stop(why)
            self._cut_waiting()

    def _cut_waiting(self) -> None:
        """A run that only waits for a model that is away need not come to its next offer before it stops."""
        if self._why is not None and self._driver is not None and self._context is not None and self._context.idle:
            self._driver.cut()

    def give_up(self) -> None:
        """The grace is over: calls that Redis does not answer are not repeated any more."""
        self._given_up = True
        if self._writer is not None:
            self._writer.fail(StoreUnavailable("the grace is over"))
        if self._driver is not None:
            self._driver.cut()

    async def look(self) -> None:
        """Something was said about this task: ask Redis what is true."""
        try:
            self._heard(await self._tools.holder.beat(self.lease))
        except LeaseLost as lost:
            self._heard(lost)
        except (StoreUnavailable, Broken):
            return  # the heartbeat asks again soon

    def _heard(self, asked: str | LeaseLost) -> None:
        if isinstance(asked, LeaseLost):
            self.stop(Why.LOST)
        elif asked == "pause":
            self.stop(Why.PAUSE)

    def _write_error(self, error: Exception) -> None:
        if isinstance(error, StoreUnavailable):
            self.stop(Why.FULL)
        elif isinstance(error, Broken):
            self.stop(Why.BROKEN)
        else:
            self.stop(Why.LOST)

    # the run

    async def run(self) -> None:
        """Never raises, except when cancelled."""
        self._tools.heart.add(self.lease, self._heard)
        log.info("%s: run %d starts (%s)", self.task_id, self._claimed.num("attempts"), self._kind)
        try:
            await self._run()
        except LeaseLost as lost:
            log.info("%s: no longer ours (%s)", self.task_id, lost.reason)
        except StoreUnavailable as error:
            log.warning("%s: left to its lease: %s", self.task_id, error)
        except Exception:
            log.exception("%s: left to its lease by our own mistake", self.task_id)
        finally:
            self._tools.heart.remove(self.lease)
            for handle in self._watch:
                handle.cancel()

    async def _run(self) -> None:
        try:
            kind, data, total = self._known()
            resume = await self._patiently(lambda: load(self._claimed, kind, self._tools.holder, self._tools.objects))
        except NothingToTrust as error:
            log.error("%s: %s", self.task_id, error)
            await self._release(self._here(), "paused", "checkpoint_failed")
            return
        except (LeaseLost, StoreUnavailable):
            raise
        except Exception as error:
            await self._fail(error, self._here())
            return
        try:
            await self._drive(kind, data, total, resume)
        except WentBack as error:  # the lease ends, and counts as a loss: should it be our mistake, that budget ends it
            log.error("%s: left to its lease: Redis holds less than was written (%s)", self.task_id, error)
        except Broken as error:
            log.exception("%s: what was to be written could not be: our own mistake", self.task_id)
            wrong = Permanent("internal", "Something went wrong inside Unbroken.", detail=str(error))
            await self._fail(wrong, self._here())

    def _known(self) -> tuple[Kind, object, int | None]:
        """The kind, its input and how much work that is. Raises Permanent, and what the kind's own code raises."""
        kind = self._tools.kinds.get(self._kind)
        if kind is None:
            raise Permanent("unknown_kind", f"No worker here knows the kind {self._kind!r}.")
        try:
            data = kind.Input.model_validate(codec.unpack(self._claimed.input, limit=INPUT_LIMIT))
        except Corrupt as error:
            raise Permanent("invalid_input", "The stored input cannot be read.", detail=str(error)) from error
        except ValidationError as error:
            where = ", ".join(".".join(map(str, e["loc"])) or "input" for e in error.errors()[:5])
            raise Permanent("invalid_input", f"The input does not fit the kind: {where}.", detail=str(error)) from error
        total = kind.total(data)
        return kind, data, None if total is None else whole("total", total)

    @staticmethod
    def _here() -> Last:
        """What is stored, and nothing more."""
        return Last(-1)

    async def _drive(self, kind: Kind, data: object, total: int | None, resume: Resume) -> None:
        tools, settings = self._tools, self._tools.settings
        writer = Writer(
            self._claimed, tools.holder, tools.pump, resume.raw, on_wish=self._heard, on_error=self._write_error
        )
        self._writer = writer
        if kind.unit == "items":
            writer.done = len(resume.items)
        if writer.total is None:
            writer.total = total
        if writer.total is None and kind.unit == "tokens":
            writer.total = settings.default_max_tokens
        if kind.continues == "state" and len(resume.text) > resume.state_offset:
            resume.text = resume.text[: resume.state_offset]
            await writer.rewind(resume.state_offset)
        self._context = context = self._make_context(data, resume)
        context.on_wait = self._cut_waiting
        saver = Saver(
            self.lease,
            tools.holder,
            tools.objects,
            writer,
            tools.pump,
            schema=kind.schema,
            late=kind.continues == "text",
        )
        saver.give_up = self._over
        grace = 0.2 if kind.continues == "text" else settings.drain_s / 2
        try:
            steps = source(kind.run(context), self.task_id)
        except Exception as wrong:  # the kind's own code
            await self._fail(wrong, await writer.settle())
            return
        self._driver = driver = Driver(self.lease, steps, writer, saver, tools.holder, tools.pump, grace_s=grace)
        if self._why is not None:
            driver.stop(self._why)
        self._limit_time(settings)
        error = await self._finished(driver)
        await context.close()
        await self._end(kind, driver, writer, saver, error)

    def _make_context(self, data: object, resume: Resume) -> Context:
        record, tools = self._claimed, self._tools
        return Context(
            task_id=self.task_id,
            attempt=record.num("attempts"),
            input=data,
            text=resume.text,
            state=resume.state,
            state_offset=resume.state_offset,
            tail=resume.tail,
            items=resume.items,
            settings=tools.settings,
            backend=tools.backend,
            limits=ModelLimits(tools.calls, tools.pump, tools.settings),
            absence=tools.absence,
            failures=sum(record.num(name) for name in ("errors", "past_errors", "losses", "timeouts")),
            last_try=record.num("errors") + 1 >= record.num("max_attempts"),
        )

    def _limit_time(self, settings: Settings) -> None:
        seconds = self._claimed.num("timeout_ms") / 1000
        if seconds > 0:
            self._watch.add(self._loop.call_later(seconds, self.stop, Why.TIMEOUT))

    async def _finished(self, driver: Driver) -> BaseException | None:
        """Wait for the driver. One that is stuck in a kind that cannot be stopped is left behind after the grace."""
        task = asyncio.create_task(driver.run(), name=f"drive {self.task_id}")
        grace = self._tools.settings.drain_s / 4  # what is left is for the last writes
        while True:
            done, _ = await asyncio.wait({task}, timeout=min(0.5, grace / 2))
            if done:
                return RuntimeError("the kind cancelled itself") if task.cancelled() else task.exception()
            if driver.cut_at and self._loop.time() - driver.cut_at > grace:
                log.error("%s: its kind does not stop; left behind", self.task_id)
                task.cancel()
                task.add_done_callback(lambda t: t.cancelled() or t.exception())
                return None

    # the ways out

    async def _end(self, kind: Kind, driver: Driver, writer: Writer, saver: Saver, error: BaseException | None) -> None:
        if isinstance(error, LeaseLost) or self._why is Why.LOST:
            raise error if isinstance(error, (LeaseLost, Broken)) else LeaseLost
        if isinstance(writer.error, Broken):  # whatever the kind made of being stopped
            raise writer.error
        if isinstance(error, Broken):
            raise error
        if isinstance(error, (SavingFailed, StoreUnavailable)) or driver.why is Why.FULL:
            await self._release(await writer.settle(), "paused", "checkpoint_failed")
        elif error is not None:
            await saver.last()
            await self._fail(error, await writer.settle())
        elif driver.ended:
            await self._complete(kind, writer)
        else:
            await saver.last()
            to = "recovering" if driver.why is Why.SHUTDOWN else "paused"
            reason = "" if driver.why in (Why.SHUTDOWN, None) else driver.why.value
            await self._release(await writer.settle(), to, reason)

    async def _complete(self, kind: Kind, writer: Writer) -> None:
        writer.finish()
        last = await writer.settle()
        holder = self._tools.holder
        result: Result = await self._patiently(lambda: result_of(kind, holder, self.lease, writer))
        await self._patiently(
            lambda: holder.complete(
                self.lease,
                last,
                sha256=result.sha256,
                size=writer.bytes,
                result_length=result.length,
                done=writer.done,
                total=writer.total,
            )
        )
        log.info("%s: completed, %d characters", self.task_id, result.length)

    async def _fail(self, error: BaseException, last: Last) -> None:
        s = self._tools.settings
        failure = understood(error, self._kind)
        delay = retry_delay(
            self._claimed.num("errors"),
            base=s.backoff_base_s,
            cap=s.backoff_cap_s,
            retry_after=failure.retry_after_s,
            roll=random.random(),  # noqa: S311 - jitter
        )
        state = await self._patiently(
            lambda: self._tools.holder.fail(
                self.lease,
                last,
                retryable=failure.retryable,
                delay_s=delay,
                error=failure.error,
                detail=failure.detail,
                group=failure.group,
            )
        )
        log.warning("%s: %s (%s): now %s", self.task_id, failure.code, type(error).__name__, state)

    async def _release(self, last: Last, to: str, reason: str) -> None:
        state = await self._patiently(lambda: self._tools.holder.release(self.lease, last, to=to, reason=reason))
        log.info("%s: given back, now %s %s", self.task_id, state, reason)

    def _over(self) -> bool:
        return self._given_up or self._why is Why.LOST

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._tools.pump.patiently(call, give_up=self._over, full_s=3600)
