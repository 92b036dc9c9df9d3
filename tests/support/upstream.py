"""A model server that misbehaves as asked: splits bytes, fails, hangs, cuts, repeats. Real HTTP on a real
port."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn

from tests.support.llama import free_port

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass
class Plan:
    """How to answer one request.

    text: the whole answer; of it comes what is behind the text in the request. echo: repeat that text
    first, or its last N characters. end: "both" markers, one of them, "cut" (clean end of the body without
    any), "reset" (broken connection), "hang". after: how many parts come before that end; None = all. cut:
    bytes per network write."""

    text: str = "One two three."
    size: int = 3
    cut: int | None = None
    escape: bool = True
    units: bool = False
    echo: Literal["none", "all"] | int = "none"
    end: Literal["both", "finish", "done", "cut", "reset", "hang"] = "both"
    finish: str = "stop"
    after: int | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: Any = None
    before: tuple[str, ...] = ()
    refuse_prefill: bool = False


@dataclass
class Seen:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    gone: threading.Event = field(default_factory=threading.Event)


class Upstream:
    """Plans are used up in order; the last one stays."""

    def __init__(self) -> None:
        self.url = ""
        self.plans: deque[Plan] = deque([Plan()])
        self.seen: list[Seen] = []

    def answer(self, *plans: Plan) -> None:
        """Answer the next requests like this."""
        self.plans = deque(plans)
        self.seen.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        raw = b""
        while True:
            message = await receive()
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["path"].endswith("/models"):
            await _reply(send, 200, {}, {"object": "list", "data": [{"id": "listed", "object": "model"}]})
            return
        seen = Seen(scope["path"], headers, json.loads(raw))
        self.seen.append(seen)
        plan = self.plans.popleft() if len(self.plans) > 1 else self.plans[0]
        turns = seen.body.get("messages") or [{"role": "assistant"}]
        if plan.refuse_prefill and turns[-1]["role"] == "assistant":
            await _reply(send, 400, {}, {"error": {"message": "prefill is not supported", "code": None}})
        elif plan.status != 200:
            await _reply(send, plan.status, plan.headers, plan.error)
        else:
            await self._stream(seen, plan, receive, send)

    async def _stream(self, seen: Seen, plan: Plan, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(_write(seen, plan, send))
        leaving = asyncio.create_task(_left(receive))
        await asyncio.wait([writing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            seen.gone.set()
            writing.cancel()
        leaving.cancel()
        await asyncio.wait([writing, leaving])
        if not writing.cancelled():
            writing.result()


def told(body: dict[str, Any]) -> str:
    """The text so far that a request carries."""
    if "prompt" in body:
        return str(body["prompt"].rpartition("<|im_start|>assistant\n")[2])
    turns = body["messages"]
    place = -2 if len(turns) > 2 and turns[-2]["role"] == "assistant" else -1
    return str(turns[place]["content"]) if turns[place]["role"] == "assistant" else ""


def parts_of(plan: Plan, body: dict[str, Any]) -> list[str]:
    """The answer in pieces."""
    so_far = told(body)
    echo = so_far if plan.echo == "all" else "" if plan.echo == "none" else so_far[-plan.echo :]
    rest = echo + plan.text[len(so_far) :]
    return [rest[at : at + plan.size] for at in range(0, len(rest), plan.size)][: plan.after]


async def _write(seen: Seen, plan: Plan, send: Send) -> None:
    chat = "messages" in seen.body

    def event(text: str | None, why: str | None = None) -> bytes:
        said = {"delta": {} if text is None else {"content": text}} if chat else {"text": text or ""}
        data = {"id": "x", "choices": [{"index": 0, **said, "finish_reason": why}]}
        return b"data: " + json.dumps(data, ensure_ascii=plan.escape).encode() + b"\n\n"

    out = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n' if chat else b""
    out += b"".join(f"{line}\n\n".encode() for line in plan.before)
    for part in parts_of(plan, seen.body):
        out += b"".join(map(event, _units(part))) if plan.units else event(part)
    if plan.end in ("both", "finish"):
        out += event(None, plan.finish)
    if plan.end in ("both", "done"):
        out += b"data: [DONE]\n\n"
    kind = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": kind})
    step = plan.cut or len(out) or 1
    for at in range(0, len(out), step):
        await send({"type": "http.response.body", "body": out[at : at + step], "more_body": True})
        await asyncio.sleep(0)
    if plan.end == "hang":
        await asyncio.Event().wait()
    if plan.end == "reset":
        raise ConnectionResetError("as planned")
    await send({"type": "http.response.body", "body": b""})


def _units(text: str) -> list[str]:
    """UTF-16 units, each as a string of its own: the halves of an emoji apart."""
    raw = text.encode("utf-16-le")
    return [raw[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(raw), 2)]


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _reply(send: Send, status: int, headers: dict[str, str], body: Any) -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    pairs.append((b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": raw})


@contextmanager
def running_upstream(port: int = 0) -> Iterator[Upstream]:
    """Serve in a thread of this process until the end of the block, on any free port or on this one."""
    upstream = Upstream()
    port = port or free_port()
    config = uvicorn.Config(
        upstream, host="127.0.0.1", port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the upstream never listened"
        time.sleep(0.01)
    upstream.url = f"http://127.0.0.1:{port}"
    try:
        yield upstream
    finally:
        server.should_exit = True
        thread.join(20)
