"""The body of a submit, and the inputs of the built-in kinds, validated before anything is stored.

Unknown fields are refused, so that a typing error is seen. Sizes are limited here by count and in the server by
bytes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from unbroken.tasks.events import EPOCH, LAST_MS

MAX_PROMPT = 1_000_000  # characters; a long book chapter several times over
MAX_ITEMS = 1_000
MAX_STEPS = 100

Word = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$"),
]
Prompt = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROMPT, pattern=r"\S")]


class Strict(BaseModel):
    """Unknown fields are an error; "5" is not 5."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Message(Strict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, StringConstraints(max_length=MAX_PROMPT)]


class Script(Strict):
    """What the `scripted` backend should do: deterministic text from a seed, and faults at a place.

    rate: tokens per second, 0 = as fast as possible. fail_at: token before which it fails. fail_times: how often."""

    seed: int = 0
    tokens: Annotated[int, Field(ge=0, le=5_000_000)] = 200
    rate: Annotated[float, Field(ge=0, le=1_000_000, strict=False)] = 0
    fail_at: Annotated[int, Field(ge=0)] | None = None
    fail: Literal["transient", "permanent", "crash", "hang"] | None = None
    fail_times: Annotated[int, Field(ge=1)] = 1


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


Stop = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Sampling(Strict):
    """What every model call may set."""

    system: Annotated[str, StringConstraints(max_length=MAX_PROMPT)] | None = None
    model: Word | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, strict=False)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    stop: Annotated[
        Annotated[list[Stop], Field(max_length=8)] | None,
        BeforeValidator(_listed, json_schema_input_type=Stop | Annotated[list[Stop], Field(max_length=8)] | None),
    ] = None
    """Texts at which an answer ends; one alone may stand without a list, as OpenAI's own API has it."""


class Scripted(Sampling):
    """Where the backend is a script, a task may say what that script does. No other server knows this field."""

    scripted: Script | None = None


class Generation(Scripted):
    """One model call: a conversation and how to sample. Made by the kinds, understood by the backends."""

    messages: list[Message]


SOME_TEXT: dict[str, Any] = {"contains": {"required": ["content"], "properties": {"content": {"pattern": r"\S"}}}}


class PlainText(Sampling):
    """kind `text`: one answer."""

    model_config = ConfigDict(title="TextInput")

    prompt: Prompt | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=1_000, json_schema_extra=SOME_TEXT)] | None = None

    @field_validator("messages")
    @classmethod
    def _some_text(cls, given: list[Message] | None) -> list[Message] | None:
        if given is not None and not any(message.content.strip() for message in given):
            raise ValueError("At least one message must have text in its content.")
        return given

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("Give either prompt or messages.")
        return self


class PlainBatch(Sampling):
    """kind `batch`: one instruction, many items; each item is its own model call."""

    model_config = ConfigDict(title="BatchInput")

    instruction: Prompt
    items: Annotated[list[Prompt], Field(min_length=1, max_length=MAX_ITEMS)]


class Step(Strict):
    """One step of a chain."""

    name: Word
    prompt: Prompt


class PlainChain(Sampling):
    """kind `chain`: each step sees the text so far."""

    model_config = ConfigDict(title="ChainInput")

    steps: Annotated[list[Step], Field(min_length=1, max_length=MAX_STEPS)]


class TextInput(PlainText, Scripted):
    """kind `text`, as workers read it: the script passes through."""


class BatchInput(PlainBatch, Scripted):
    """kind `batch`, as workers read it."""


class ChainInput(PlainChain, Scripted):
    """kind `chain`, as workers read it."""


class Submit(Strict):
    """The body of POST /api/tasks. `input` is validated by its kind afterwards."""

    kind: Annotated[str, StringConstraints(min_length=1, max_length=40)] = "text"
    input: dict[str, Any]
    priority: Literal["high", "normal", "low"] = "normal"
    sender: Word | None = None
    topic: Word | None = None
    run_at: Annotated[datetime, Field(strict=False)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    max_crashes: Annotated[int, Field(ge=1, le=100)] = 3
    recovery: Literal["auto", "manual"] = "auto"
    timeout_s: Annotated[float, Field(gt=0, le=30 * 86_400, strict=False)] = 3_600
    cache_s: Annotated[float, Field(ge=0, le=30 * 86_400, strict=False)] = 0
    """Opt-in: take the finished result of the same owner, kind and input when it is not older than this."""
    callback: Annotated[str, StringConstraints(max_length=2_000, pattern=r"^https?://[^\s\x00-\x1f]+$")] | None = None
    """Opt-in: where to send a signed webhook when the task is completed or failed."""

    @field_validator("run_at")
    @classmethod
    def _aware(cls, given: datetime | None) -> datetime | None:
        if given is not None and given.tzinfo is None:
            raise ValueError("Needs a time zone, such as 2026-01-31T18:00:00Z.")
        if given is not None and due_ms(given) > LAST_MS:
            raise ValueError("Must be before the year 10000 in UTC.")
        return given


def due_ms(run_at: datetime | None) -> int:
    """When it is due, in milliseconds of UTC; 0 = now, also for every time before 1970."""
    return max(0, (run_at - EPOCH) // timedelta(milliseconds=1)) if run_at else 0
