"""What a kind of task is: one small class that turns an input into updates, and can continue.

    class Primes(Kind):
        name = "primes"
        unit = "steps"

        class Input(BaseModel):
            upto: int

        async def run(self, run):                      # or a plain `def` generator: it runs in a thread
            n = run.state["n"] if run.state else 2     # continue where the newest checkpoint was
            while n <= run.input.upto:
                ...
                yield Text(f"{n} ")
                yield Progress(n, run.input.upto)
                yield Checkpoint({"n": n + 1})         # offered; saved when it is time to

The updates are plain values. The runner turns them into fenced writes; a kind never talks to Redis.

Two ways to continue (G9, G10):
- `continues = "text"`: the text in the log is the truth. The run gets all of it, the newest checkpoint, and what the
  log holds beyond that checkpoint (`run.tail`); viewers are never rewound.
- `continues = "state"`: the checkpoint's state is the truth. Text beyond the checkpoint's offset is taken back
  (viewers are rewound to it) before `run` is called.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from unbroken.tasks.inputs import Generation


@dataclass(frozen=True, slots=True)
class Text:
    """More text. `tokens` are the ids behind it, where a backend knows them; `count` is how many tokens it stands
    for. `mark` is a small msgpack-able note of where in the work this text belongs (a step's number); both are kept
    in the log beside the text, unseen by viewers, and come back in `Run.tail`."""

    text: str
    tokens: tuple[int, ...] = ()
    count: int = 1
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work is, in the kind's unit. `total` may be None when unknown."""

    done: int
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a batch is finished: a result, or an error of its own. Set once, never again (G13)."""

    index: int
    result: Any = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A point to continue from, at exactly this place in the text. `state` is msgpack-able, or a function that makes
    it, called only when the checkpoint is really saved. Offered points are saved every N tokens or M seconds, a
    milestone (a finished step) always. `late` is for work that goes on beside the generator (calls in parallel): at a
    stop its function is called only after the generator was closed, so that nothing made until then is missed."""

    state: Mapping[str, Any] | Callable[[], Awaitable[Mapping[str, Any]]]
    milestone: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Rewind:
    """Take the text back to `offset` (code points): what follows came out differently."""

    offset: int


Update: TypeAlias = Text | Progress | Item | Checkpoint | Rewind


@dataclass(frozen=True, slots=True)
class Tail:
    """One chunk of the log beyond the newest checkpoint."""

    offset: int
    text: str
    tokens: tuple[int, ...] = ()
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What a backend yields: text, the token ids behind it (if known) and their number.
    `save`, where present, gives the backend's own state at exactly this point, until the next piece is asked for."""

    text: str
    tokens: tuple[int, ...] = ()
    count: int = 1
    save: Callable[[], Awaitable[bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Prefix:
    """The part of an answer that already exists, for a backend to continue exactly behind it.

    text: what viewers have seen of this answer. tokens: the ids behind all of `text`, or () when they are not all
    known. count: number of tokens so far (an estimate without ids). state: the backend's own saved state, or None;
    it may be older than the text."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    count: int = 0
    state: bytes | None = None


class Run(Protocol):
    """What the runner hands to a kind."""

    task_id: str
    attempt: int
    input: Any
    """The validated `Kind.Input`."""
    text: str
    """All text so far, as viewers see it (after the rewind, if the kind continues from its state)."""
    state: Mapping[str, Any] | None
    """The newest valid checkpoint's state, or None."""
    state_offset: int
    """Code points of text when that checkpoint was made."""
    tail: Sequence[Tail]
    """What the log holds beyond that checkpoint (only for `continues = "text"`)."""
    items: Mapping[int, Any]
    """Results that are already set, by index; an item that failed for good has {"error": ...}."""
    last_try: bool
    """Another error ends the task: its budget of errors is used up."""

    def generate(self, ask: Generation, prefix: Prefix = Prefix(), *, part: str = "") -> AsyncIterator[Piece | Rewind]:
        """Call the model: yields the text behind `prefix`. A Rewind(0) says that the backend starts over, and what
        follows replaces the prefix. `part` names the call inside the task ("item-7") for the upstream request id.
        Raises Transient or Permanent. Waits for the model's rate limits; applies first-token and idle timeouts."""
        ...


class NoInput(BaseModel):
    """The input of a kind that takes none."""

    model_config = ConfigDict(extra="forbid")


class Kind:
    """Base of all kinds. Subclasses set `name` and `Input` and write `run`."""

    name: ClassVar[str]
    unit: ClassVar[str] = "steps"
    continues: ClassVar[Literal["text", "state"]] = "state"
    schema: ClassVar[int] = 1
    """Version of the state in checkpoints; a checkpoint of another version is never resumed from silently."""
    Input: ClassVar[type[BaseModel]] = NoInput

    def run(self, run: Run) -> AsyncIterator[Update] | Iterator[Update]:
        """Yield updates until the work is done. Raise Transient or Permanent when it goes wrong; anything else that
        is raised counts as transient, up to the budget."""
        raise NotImplementedError(f"{type(self).__name__}.run")

    def total(self, data: Any) -> int | None:
        """How many units `data` (the validated Input) will take, when that is known before the start."""
        return None


@dataclass
class Registry:
    """The kinds this process knows, by name."""

    inputs: dict[str, type[BaseModel]] = field(default_factory=dict)
    kinds: dict[str, type[Kind]] = field(default_factory=dict)

    def add(self, kind: type[Kind]) -> None:
        """Register a kind. Raises ValueError for a name that is taken or malformed."""
        name = getattr(kind, "name", "")
        if not name or not name.replace("_", "").replace("-", "").isalnum() or len(name) > 40:
            raise ValueError(f"{kind.__name__}: a kind needs a name of 1-40 letters, digits, - and _")
        if name in self.kinds and self.kinds[name] is not kind:
            raise ValueError(f"two kinds are called {name!r}")
        self.kinds[name] = kind
        self.inputs[name] = kind.Input
