"""The proxy in front of Redis: it understands commands and whole replies, so that a test can name what goes wrong.

    proxy.lose("append", nth=3)     # the third append is executed, its reply never arrives, the connection breaks
    proxy.late("heartbeat", 4.0)    # the next heartbeat reaches Redis four seconds late
    proxy.strike(worker.kill, nth=5, after=True)   # somebody is killed after the fifth script was executed
    proxy.lose_some(0.05, chance)   # five of a hundred replies of all commands

`proxy.done` counts executed scripts by name."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from tests.support.proxy import BLOCK, Link, Proxy
from unbroken.tasks.scripts import names, script

_PUSHING = {b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE"}
_NOT_DONE = b"-NOSCRIPT"


@cache
def _by_sha() -> dict[str, str]:
    return {script(name).sha: name for name in names()}


def end_of(buffer: bytes | bytearray, at: int = 0) -> int:
    """Where the RESP value that starts at `at` ends; -1 while it is not whole."""
    line = buffer.find(b"\r\n", at)
    if line < 0:
        return -1
    kind, number = buffer[at : at + 1], buffer[at + 1 : line]
    if kind in b"+-:,#_(":
        return line + 2
    count = int(number)
    if kind in b"$=!":
        end = line + 2 + (count + 2 if count >= 0 else 0)
        return end if end <= len(buffer) else -1
    at = line + 2
    for _ in range(max(0, count) * (2 if kind == b"%" else 1)):
        at = end_of(buffer, at)
        if at < 0:
            return -1
    return at


def words_of(raw: bytes) -> list[bytes]:
    """The arguments of one command as redis-py sends it: an array of strings."""
    words = []
    at = raw.index(b"\r\n") + 2
    while at < len(raw):
        line = raw.index(b"\r\n", at)
        size = int(raw[at + 1 : line])
        words.append(raw[line + 2 : line + 2 + size])
        at = line + 4 + size
    return words


@dataclass(slots=True)
class Command:
    """One command on its way. script: the name of one of our scripts, or ''."""

    words: list[bytes]
    script: str
    fate: Rule | None = None

    @staticmethod
    def read(raw: bytes) -> Command:
        """Understand the bytes of a command."""
        words = words_of(raw)
        name = words[0].upper()
        ours = ""
        if name == b"EVALSHA":
            ours = _by_sha().get(words[1].decode(), "")
        elif name == b"EVAL":
            ours = _by_sha().get(hashlib.sha1(words[1], usedforsecurity=False).hexdigest(), "")
        return Command(words, ours)


@dataclass(eq=False)
class Rule:
    """From the `nth` fitting command on, `times` of them. seen: fitting commands so far; hits: how many were struck."""

    wants: Callable[[Command], bool]
    nth: int = 1
    times: int = 1
    late_s: float = 0.0
    gate: asyncio.Event | None = None
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    lose: bool = False
    silent: bool = False
    seen: int = 0
    owed: int = 0
    hits: int = 0
    what: str = ""
    """The script that was struck last."""
    hit: asyncio.Event = field(default_factory=asyncio.Event)

    def takes(self, command: Command) -> bool:
        """Is it this one's turn?"""
        if not self.wants(command):
            return False
        if self.owed:  # the one whose turn it was came too early: the script was not known yet
            self.owed -= 1
            return True
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times

    def struck(self, command: Command) -> None:
        """It happened to this one."""
        self.hits += 1
        self.what = command.script
        self.hit.set()


class RedisLink(Link):
    """One connection to Redis, command by command and reply by reply."""

    proxy: RedisProxy
    _waiting: deque[Command]
    _held = 0

    @property
    def busy(self) -> bool:
        """Commands on their way, or held back."""
        return bool(self._held or (self._waiting and not self._pushing))

    async def up(self) -> None:
        """Read whole commands; decide about each as it passes."""
        self._waiting = deque()
        self._pushing = False
        buffer = bytearray()
        while block := await self.client[0].read(BLOCK):
            buffer += block
            at = 0
            while (end := end_of(buffer, at)) > 0:
                raw, at = bytes(buffer[at:end]), end
                if not await self._pass(Command.read(raw), raw):
                    return
            del buffer[:at]

    async def _pass(self, command: Command, raw: bytes) -> bool:
        self._pushing = self._pushing or command.words[0].upper() in _PUSHING
        rule = command.fate = next((rule for rule in self.proxy.rules if rule.takes(command)), None)
        if rule is not None and rule.late_s:
            rule.struck(command)
            await asyncio.sleep(rule.late_s)
        if rule is not None and rule.gate is not None:
            rule.struck(command)
            self._held += 1
            await rule.gate.wait()
            self._held -= 1
        if rule is not None and rule.before is not None:
            rule.before()
            rule.struck(command)
            self.cut()
            return False
        self._waiting.append(command)
        await self.send(self.server[1], raw)
        return True

    async def down(self) -> None:
        """Read whole replies; each belongs to the oldest command without one."""
        buffer = bytearray()
        while block := await self.server[0].read(BLOCK):
            buffer += block
            at = 0
            while (end := end_of(buffer, at)) > 0:
                raw, at = bytes(buffer[at:end]), end
                if not await self._reply(raw):
                    return
            del buffer[:at]

    async def _reply(self, raw: bytes) -> bool:
        if self._pushing or not self._waiting:
            await self.answer(raw)
            return True
        command = self._waiting.popleft()
        rule = command.fate
        executed = not raw.startswith(_NOT_DONE)
        if executed and command.script:
            self.proxy.done[command.script] += 1
        if rule is None or not (rule.lose or rule.after):
            await self.answer(raw)
            return True
        if not executed:  # the same call comes again with its source, and is the one that counts
            rule.owed += 1
            await self.answer(raw)
            return True
        if rule.after is not None:
            rule.after()
        self.proxy.lost += 1
        rule.struck(command)
        if not rule.silent:
            self.cut()
            return False
        return True


class RedisProxy(Proxy):
    """target: a Valkey's url (unix://) or host:port. `redis_url` is what our processes get."""

    link = RedisLink

    def __init__(self, target: str, *, port: int = 0) -> None:
        super().__init__(target, port=port)
        self.rules: list[Rule] = []
        self.done: Counter[str] = Counter()
        self.lost = 0

    @property
    def redis_url(self) -> str:
        """For UNBROKEN_REDIS_URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _rule(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def lose(self, script: str, *, nth: int = 1, times: int = 1, silent: bool = False) -> Rule:
        """Redis executes it and nobody hears of it. silent: the connection stays open, so only a timeout tells."""
        return self._rule(Rule(lambda c: c.script == script, nth=nth, times=times, lose=True, silent=silent))

    def lose_some(self, share: float, chance: random.Random) -> Rule:
        """This share of the replies of all scripts, for as long as the rule stays."""
        wants = lambda c: bool(c.script) and chance.random() < share  # noqa: E731
        return self._rule(Rule(wants, times=1 << 60, lose=True))

    def late(self, script: str, seconds: float, *, nth: int = 1, times: int = 1) -> Rule:
        """It reaches Redis so much later."""
        return self._rule(Rule(lambda c: c.script == script, nth=nth, times=times, late_s=seconds))

    def stop_at(self, script: str, *, nth: int = 1, times: int = 1) -> Rule:
        """It does not reach Redis until the rule's `gate` is set."""
        return self._rule(Rule(lambda c: c.script == script, nth=nth, times=times, gate=asyncio.Event()))

    def strike(self, what: Callable[[], object], *, nth: int, after: bool, script: str | None = None) -> Rule:
        """Call `what` (kill somebody) before the nth script reaches Redis, or after it was executed; the connection is
        cut in both cases. script: count only this one; heartbeats are never counted, they come by the clock."""
        wants = lambda c: c.script == script if script else c.script not in ("", "heartbeat")  # noqa: E731
        rule = Rule(wants, nth=nth, after=what) if after else Rule(wants, nth=nth, before=what)
        return self._rule(rule)

    def clear(self) -> None:
        """Behave again."""
        self.rules.clear()

    async def __aenter__(self) -> RedisProxy:
        await self.start()
        return self
