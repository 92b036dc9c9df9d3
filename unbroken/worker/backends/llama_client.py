"""llama.cpp's native HTTP API, as far as we use it: typed calls, and its errors as Transient or Permanent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from unbroken.tasks.errors import Permanent, TaskError, Transient, Unreached
from unbroken.tasks.inputs import Message

_GONE = ("The local model cannot be reached.", "It is starting, or was restarted.")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of an answer. `predicted` counts all tokens of this request so far, `last` is the id of the
    newest.

    `last` stands alone even when the text took several tokens: the server holds incomplete characters back
    and then tells only the id that completed them (seen: four tokens of a flag, one id)."""

    text: str
    last: int | None
    predicted: int


@dataclass(frozen=True, slots=True)
class End:
    """How a request ended. why: "eos" or "limit" (also when the context is full). evaluated: prompt tokens
    that had to be computed; cached: those that were still there."""

    why: str
    predicted: int
    evaluated: int
    cached: int


@dataclass(frozen=True, slots=True)
class About:
    """What the server serves: number of slots, context of each in tokens, and what the model is."""

    slots: int
    context: int
    model: dict[str, Any]


class LlamaClient:
    """One llama.cpp server. `wait_s` limits the silence before and between tokens."""

    def __init__(self, url: str, *, connect_timeout_s: float = 10, wait_s: float = 120) -> None:
        timeout = httpx.Timeout(wait_s, connect=connect_timeout_s)
        # Never through a proxy from the environment: this server is on this machine.
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout, trust_env=False)

    async def close(self) -> None:
        """Release connections."""
        await self._http.aclose()

    async def about(self) -> About:
        """Number and size of the slots and the model's description. Transient while it loads or is away."""
        props = await self._get("/props")
        models = await self._get("/v1/models")
        model = models["data"][0]
        return About(
            slots=int(props["total_slots"]),
            context=int(props["default_generation_settings"]["n_ctx"]),
            model={"id": model["id"], **(model.get("meta") or {})},
        )

    async def render(self, messages: Sequence[Message]) -> str:
        """The conversation as the model's own chat template writes it, ready for the answer."""
        body = {"messages": [message.model_dump() for message in messages]}
        return str((await self._post("/apply-template", body))["prompt"])

    async def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Token ids of `text`. With `special`, "<|im_end|>" and the like become the control tokens they
        name."""
        body = {"content": text, "add_special": special, "parse_special": special}
        return list((await self._post("/tokenize", body))["tokens"])

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of these tokens."""
        return str((await self._post("/detokenize", {"tokens": list(tokens)}))["content"])

    async def complete(self, body: dict[str, Any]) -> AsyncGenerator[Chunk | End, None]:
        """Stream one /completion; the last value is always an End. Closing it closes the connection, at
        which the server stops generating. Raises Transient when the stream ends without its end marker."""
        settings = {**body, "stream": True, "return_tokens": True, "cache_prompt": True}
        async with self._mapped(), self._http.stream("POST", "/completion", **_json(settings)) as reply:
            if reply.status_code != httpx.codes.OK:
                await reply.aread()
                raise _refusal(reply)
            async for line in reply.aiter_lines():
                if line.startswith("error: "):
                    raise _from_error(json.loads(line.removeprefix("error: ")), 500)
                if not line.startswith("data: "):
                    continue  # blank lines and pings
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise _from_error(event["error"], 500)
                if event["stop"]:
                    yield _end(event)
                    return
                tokens = event["tokens"]
                yield Chunk(event["content"], tokens[-1] if tokens else None, event["tokens_predicted"])
        raise Transient("upstream_ended_early", "The local model stopped in the middle of an answer.")

    async def save(self, slot: int, filename: str) -> None:
        """Write the slot's computed state to a file in the server's slot folder."""
        await self._post(f"/slots/{slot}?action=save", {"filename": filename})

    async def restore(self, slot: int, filename: str) -> None:
        """Load such a file into a slot. Permanent when the server refuses it."""
        await self._post(f"/slots/{slot}?action=restore", {"filename": filename})

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._mapped():
            return _body(await self._http.get(path))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._mapped():
            return _body(await self._http.post(path, **_json(body)))

    @asynccontextmanager
    async def _mapped(self) -> AsyncIterator[None]:
        """httpx's errors as ours."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreached("upstream_unreachable", " ".join(_GONE), detail=repr(error)) from error
        except httpx.TimeoutException as error:
            raise Transient("upstream_timeout", "The local model did not answer in time.") from error
        except httpx.HTTPError as error:
            raise Transient("upstream_unreachable", " ".join(_GONE), detail=repr(error)) from error
        except (ValueError, KeyError, IndexError) as error:  # not the JSON we expect
            raise Transient("upstream_garbled", "The local model sent a broken answer.") from error


def _json(body: dict[str, Any]) -> dict[str, Any]:
    """The request's content. ASCII-escaped, unlike httpx's own, so that no text at all can fail to encode."""
    return {"content": json.dumps(body).encode(), "headers": {"Content-Type": "application/json"}}


def _body(reply: httpx.Response) -> dict[str, Any]:
    if reply.status_code != httpx.codes.OK:
        raise _refusal(reply)
    decoded: dict[str, Any] = reply.json()
    return decoded


def _end(event: dict[str, Any]) -> End:
    timings = event.get("timings", {})
    return End(
        why=event.get("stop_type", ""),
        predicted=event["tokens_predicted"],
        evaluated=int(timings.get("prompt_n", 0)),
        cached=int(timings.get("cache_n", 0)),
    )


def _refusal(reply: httpx.Response) -> TaskError:
    try:
        error = reply.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {}
    return _from_error(error, reply.status_code)


def _from_error(error: dict[str, Any], status: int) -> TaskError:
    status = int(error.get("code", status))
    detail = str(error.get("message", ""))[:500]
    if error.get("type") == "exceed_context_size_error":
        return Permanent("context_length", "The text is longer than the local model can read.", detail=detail)
    if 400 <= status < 500 and status not in (408, 409, 429):
        return Permanent("bad_request", "The local model refused the request.", detail=detail)
    if error.get("type") == "unavailable_error":
        return Unreached("upstream_loading", "The local model is still loading.", detail=detail)
    return Transient("upstream_error", "The local model failed.", detail=detail)
