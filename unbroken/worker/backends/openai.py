"""Answers from any OpenAI-compatible server (vLLM, Ollama, llama.cpp, OpenAI), through the `openai` SDK.

The SDK makes the request and reads its errors; the stream is read here, from its bytes, because the end
matters: an answer is over when the server says so (`finish_reason` or `[DONE]`), not when the connection
ends."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import openai

from unbroken.tasks.errors import Permanent, Transient
from unbroken.tasks.inputs import Generation
from unbroken.tasks.kind import Piece, Prefix, Rewind
from unbroken.worker.backends.base import Call
from unbroken.worker.backends.continuing import Request, Way, request, ways
from unbroken.worker.backends.openai_errors import classify, from_event
from unbroken.worker.backends.seam import Seam, Surrogates
from unbroken.worker.backends.sse_lines import Events

_LONG_PART = 24  # characters above which a part is surely more than one token
_PER_TOKEN = 4  # characters, roughly, for such parts
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_UNFINISHED = {"error", "abort", "cancelled", "timeout"}  # finish reasons of servers that gave up


def _network_errors() -> tuple[type[Exception], ...]:
    """What reading a body may raise: the SDK builds on httpx in some versions and on httpx2 in others."""
    found: list[type[Exception]] = [OSError]
    for name in ("httpx", "httpx2"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found += [module.HTTPError, module.StreamError]
    return tuple(found)


_FAILURES: tuple[type[BaseException], ...] = (openai.OpenAIError, TimeoutError, *_network_errors())


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the answer. alive: the model has said or thought something; over: the server ended the
    answer."""

    text: str = ""
    alive: bool = False
    over: bool = False


class OpenAIBackend:
    """The server at `url`; without a path, "/v1" is added. Times in seconds.

    model: when neither this nor the call names one, the first that the server lists. first_token_timeout_s
    runs from the request to the first text, idle_timeout_s between two parts; thinking that is not shown
    counts as a part."""

    name = "openai"

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str | None = None,
        api_key: str | None = None,
        continue_by: Way = "prefill",
        connect_timeout_s: float = 10,
        first_token_timeout_s: float = 120,
        idle_timeout_s: float = 60,
        max_tokens: int | None = None,
    ) -> None:
        self._url = _complete(url or "https://api.openai.com/v1")
        self._model = model
        self._first_s, self._idle_s = first_token_timeout_s, idle_timeout_s
        self._way: Way = continue_by
        self._max_tokens = max_tokens
        self._limit_name = "max_tokens"
        longest = max(first_token_timeout_s, idle_timeout_s) + 5  # ours are exact; this one only backs them up
        self._client = openai.AsyncOpenAI(
            base_url=self._url,
            api_key=api_key or "none",  # servers without keys take any
            max_retries=0,  # a retry is the task's matter: it costs budget, and waits without holding a worker
            timeout=openai.Timeout(longest, connect=connect_timeout_s),
            http_client=_direct() if urlsplit(self._url).hostname in _LOOPBACK else None,
        )
        self._secret = api_key

    async def start(self) -> None:
        """Check the address. The server itself may be away for now: its tasks wait, the worker need not."""
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Permanent("bad_setting", f"UNBROKEN_BACKEND_URL must be an http(s) address, not {self._url!r}.")

    async def close(self) -> None:
        """Release connections."""
        await self._client.close()

    async def generate(self, ask: Generation, prefix: Prefix, call: Call) -> AsyncGenerator[Piece | Rewind, None]:
        """Continue `prefix`, or start. Where the server refuses every way of continuing, Rewind(0) comes
        right before the new text, not before there is any."""
        limit = ask.max_tokens or self._max_tokens
        if limit is not None and prefix.count >= limit:
            return
        began = asyncio.get_running_loop().time()
        async with AsyncExitStack() as stack:
            sent, body = await self._open(stack, ask, prefix, call, limit, began + self._first_s)
            seam = Seam("" if sent.fresh else prefix.text)
            rewind = sent.fresh and bool(prefix.text)
            whole, count, over = Surrogates(), 0, False
            parts = await stack.enter_async_context(aclosing(self._parts(body, sent.endpoint, began + self._first_s)))
            async for part in parts:
                over = part.over
                if not part.text and not over:
                    continue
                count += _tokens(part.text)
                text = seam.feed(whole.feed(part.text))
                if over:
                    text += seam.feed(whole.end()) + seam.end()
                if rewind and (text or over):
                    yield Rewind(0)
                    rewind = False
                if text:
                    yield Piece(text, (), count)
                    count = 0
            if not over:
                raise Transient("upstream_ended_early", "The model's server stopped in the middle of its answer.")

    async def _open(
        self,
        stack: AsyncExitStack,
        ask: Generation,
        prefix: Prefix,
        call: Call,
        limit: int | None,
        deadline: float,
    ) -> tuple[Request, AsyncIterator[bytes]]:
        """The first way that the server accepts, and the body of its answer."""
        sent = Seam(prefix.text).sent
        todo = list(ways(self._way, bool(prefix.text)))
        while True:
            way = todo[0]
            asked = request(way, ask, sent)
            left = limit if limit is None or asked.fresh else limit - prefix.count
            try:
                async with asyncio.timeout_at(deadline):
                    body = await self._send(stack, ask, asked, call, left)
            except openai.APIStatusError as error:
                if self._other_limit_name(error):
                    continue
                meaning = self._redacted(classify(error))
                # Only a refusal of the form: a full context or a refused content will not pass another way.
                if meaning.code != "bad_request" or len(todo) == 1:
                    raise meaning from error
                todo.pop(0)
            except _FAILURES as error:
                raise self._redacted(classify(error)) from error
            else:
                if way == "ask":
                    self._way = "ask"  # no need to be refused each time
                return asked, body

    async def _send(
        self, stack: AsyncExitStack, ask: Generation, asked: Request, call: Call, limit: int | None
    ) -> AsyncIterator[bytes]:
        settings: dict[str, Any] = {**asked.content, "model": ask.model or await self._model_name()}
        if limit is not None:
            name = "max_tokens" if asked.endpoint == "completion" else self._limit_name
            settings[name] = limit
        for field in ("temperature", "seed"):
            if getattr(ask, field) is not None:
                settings[field] = getattr(ask, field)
        if ask.stop or asked.stop:
            settings["stop"] = [*(ask.stop or ()), *asked.stop]
        client = self._client.chat.completions if asked.endpoint == "chat" else self._client.completions
        opening: Any = client.with_streaming_response.create(
            **settings,
            stream=True,
            extra_headers={"X-Request-ID": call.request_id, "Accept-Encoding": "identity"},
            extra_body=asked.extra or None,
        )
        response = await stack.enter_async_context(opening)
        body: AsyncIterator[bytes] = response.iter_bytes()
        return body

    async def _parts(self, body: AsyncIterator[bytes], endpoint: str, deadline: float) -> AsyncGenerator[_Part, None]:
        """Read the stream. Ends after a part that is `over`, or without one when the stream just ends.
        Pings do not move the deadline: a server may send them while its model hangs."""
        events, now = Events(), asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    read = await anext(body, None)
            except _FAILURES as error:
                raise self._redacted(classify(error)) from error
            for data in events.end() if read is None else events.feed(read):
                part = _part(data, endpoint)
                if part is None:
                    continue
                yield part
                if part.over:
                    return
                if part.alive:
                    deadline = now() + self._idle_s  # after the yield: a slow reader is not the server's fault
            if read is None:
                return

    async def _model_name(self) -> str:
        """The set model, or the first that the server lists."""
        if self._model is None:
            try:
                listed = [model.id for model in (await self._client.models.list()).data]
            except openai.NotFoundError:
                listed = ["default"]  # servers with a single model often have no list, and take any name
            if not listed:
                raise Permanent("not_found", "The model's server lists no model: set UNBROKEN_MODEL.")
            self._model = listed[0]
        return self._model

    def _other_limit_name(self, error: openai.APIStatusError) -> bool:
        """Newer models of one vendor refuse `max_tokens` and want another name for it. True: try again."""
        if self._limit_name == "max_tokens" and error.param == "max_tokens" and error.code == "unsupported_parameter":
            self._limit_name = "max_completion_tokens"
            return True
        return False

    def _redacted(self, error: Any) -> Any:
        """The same error without our key, which some servers repeat in their message."""
        if self._secret and error.detail:
            error.detail = error.detail.replace(self._secret, "***")
        return error


def _part(data: str, endpoint: str) -> _Part | None:
    """One event's part. None for events that are none of ours. Raises what an error inside the stream
    means."""
    if data.strip() == "[DONE]":
        return _Part(over=True)
    try:
        event = json.loads(data)
    except ValueError as error:
        raise Transient("upstream_garbled", "The model's server sent a broken answer.") from error
    if not isinstance(event, dict):
        return None
    if event.get("error"):
        raise from_event(event["error"])
    choices = event.get("choices")
    if not choices:
        return None  # usage, pings
    choice = choices[0]
    delta = choice.get("delta") or {}
    text = choice.get("text") if endpoint == "completion" else delta.get("content")
    why = choice.get("finish_reason")
    if why == "content_filter" or delta.get("refusal"):
        raise Permanent("content_filter", "The model's server declined this content.")
    if why in _UNFINISHED:
        raise Transient("upstream_error", "The model's server gave up in the middle of its answer.", detail=why)
    alive = bool(text) or any(said for name, said in delta.items() if name != "role")
    return _Part(text if isinstance(text, str) else "", alive=alive, over=bool(why))


def _tokens(text: str) -> int:
    """How many tokens a part stands for: servers send one per part, or sometimes several at once."""
    return len(text) // _PER_TOKEN if len(text) > _LONG_PART else int(bool(text))


def _direct() -> Any:
    """A client that ignores the environment's proxies: none of them reaches this machine's own servers."""
    return openai.DefaultAsyncHttpxClient(trust_env=False)


def _complete(url: str) -> str:
    """The address with "/v1" where it has no path at all."""
    return url.rstrip("/") + "/v1" if urlsplit(url).path in ("", "/") else url
