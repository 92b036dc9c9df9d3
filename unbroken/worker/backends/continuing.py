"""How to ask a chat server to continue a text: one request per way, and which way to try next. Pure.

prefill                 the text so far as a trailing assistant message
continue_final_message  the same, with vLLM's two switches
completion              the raw completion endpoint, with the conversation written out by us
ask                     a user turn that asks for the rest, where trailing assistant messages are refused
restart                 from the beginning, with a rewind
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from unbroken.tasks.inputs import Generation, Message

Way: TypeAlias = Literal["prefill", "continue_final_message", "completion", "ask", "restart"]

ASK = (
    "Your answer above was cut off. Continue it exactly where it stopped, with the very next character. "
    "Do not repeat anything and do not comment."
)


@dataclass(frozen=True, slots=True)
class Request:
    """What to send: the endpoint, its conversation, and fields beyond the standard ones."""

    endpoint: Literal["chat", "completion"]
    content: dict[str, Any]
    extra: dict[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    fresh: bool = False
    """The answer starts over instead of continuing."""


def ways(first: Way, has_text: bool) -> tuple[Way, ...]:
    """What to try one after the other while the server answers 400."""
    if first == "completion":
        return ("completion", "restart") if has_text else ("completion",)
    if not has_text or first == "restart":
        return ("restart",)
    return ("ask", "restart") if first == "ask" else (first, "ask", "restart")


def request(way: Way, ask: Generation, sent: str) -> Request:
    """The request of one way; `sent` is the text so far as it should be sent."""
    messages = [message.model_dump() for message in ask.messages]
    if ask.system:
        messages.insert(0, {"role": "system", "content": ask.system})
    if way == "completion":
        return Request("completion", {"prompt": written_out(messages) + sent}, stop=("<|im_end|>",))
    if way == "restart" or not sent:
        return Request("chat", {"messages": messages}, fresh=way == "restart")
    if messages and messages[-1]["role"] == "assistant":
        # The owner began the answer: what was generated belongs to the same turn.
        messages[-1] = {"role": "assistant", "content": messages[-1]["content"] + sent}
    else:
        messages.append({"role": "assistant", "content": sent})
    if way == "ask":
        return Request("chat", {"messages": [*messages, {"role": "user", "content": ASK}]})
    vllm = {"continue_final_message": True, "add_generation_prompt": False}
    return Request("chat", {"messages": messages}, extra=vllm if way == "continue_final_message" else {})


def written_out(messages: Sequence[dict[str, Any] | Message]) -> str:
    """The conversation in ChatML, the most widespread of the formats, open for the answer.

    Its markers inside a message are broken up: otherwise a text could end its own turn and speak as the
    system."""
    out: list[str] = []
    for message in messages:
        turn = message.model_dump() if isinstance(message, Message) else message
        content = turn["content"].replace("<|im_", "<| im_")
        out.append(f"<|im_start|>{turn['role']}\n{content}<|im_end|>\n")
    if messages and turn["role"] == "assistant":
        return "".join(out).removesuffix("<|im_end|>\n")
    return "".join(out) + "<|im_start|>assistant\n"
