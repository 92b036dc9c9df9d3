"""A model server that writes a readable story at a human pace: for the pictures in the documentation."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.processes import free_port
from tests.support.upstream import told
from tests.support.wait import until

PACE_S = 0.05 if os.environ.get("UNBROKEN_PICTURES") else 0.015  # a test is not for people to watch

STORY = """## The keeper

The lamp had burned every night for ninety years, and in ninety years nobody had asked who kept it. Ships came by, \
counted the flashes, and went on. **Four short, one long.** That was all the sea ever heard from Marit.

She wrote everything down. The wind, the wicks, the names of the ships when the light was good enough to read them. \
When the pages were full she sewed them into books, and when the books filled the shelf she built another shelf.

## The storm

On the third night of November the glass broke. She held her coat against the hole, and with the other hand she \
turned the lens herself:

- four short turns, for *here is the land*;
- one long turn, for *and somebody is awake*.

It went on like that until morning. In the book for that night there is a single line, written with the left hand.

> Kept it going.

## The boat

A boat came in May with a letter. The light was to be automatic from now on: a motor, a battery, a relay as large as \
a loaf of bread. The engineer was kind about it. He asked whether she would show him how the lens was balanced, and \
she did, and he wrote it down in a little book of his own.

"And if it stops?" she asked.

"Then it starts again where it stopped," he said. "It remembers."

Marit looked at the relay for a long time. Then she took the newest of her books from the shelf, found the first empty \
page, and put it next to the machine, open, with a pencil.

## What remained

The light still burns. Four short, one long. Nobody lives on the rock now, but the ships that count the flashes have \
never counted wrong, and if you climb up on a quiet day you can read the whole of it, from the first night to the \
last, without a single page missing.
"""

REFUSALS = {
    "archive": (400, "context_length_exceeded", "The prompt is longer than the model can read."),
    "translate": (401, "invalid_api_key", "The model server refused the key."),
}


async def _complete(request: Request) -> Response:
    body: dict[str, Any] = await request.json()
    asked = json.dumps(body)
    for word, (status, code, message) in REFUSALS.items():
        if word in asked:
            return JSONResponse({"error": {"message": message, "code": code, "type": code}}, status)
    limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 10_000)
    before = len(re.findall(r"\S+\s*", STORY[: len(told(body))]))
    words = re.findall(r"\S+\s*", STORY[len(told(body)) :])[:limit]
    chat = "messages" in body
    teller: Teller = request.app.state.teller

    async def events() -> AsyncIterator[str]:
        for number, word in enumerate(words, start=before):
            await until(lambda: number < teller.until, "somebody who wants to hear more")  # noqa: B023
            said = {"delta": {"content": word}} if chat else {"text": word}
            yield f"data: {json.dumps({'id': 'x', 'choices': [{'index': 0, **said, 'finish_reason': None}]})}\n\n"
            await asyncio.sleep(PACE_S)
        last: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
        yield f"data: {json.dumps({'id': 'x', 'choices': [{'index': 0, **last, 'finish_reason': 'stop'}]})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


async def _models(_request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": "storyteller", "object": "model"}]})


@dataclass
class Teller:
    """url: where it listens. until: the word of a story at which it waits, so that nothing is over too early."""

    url: str
    until: float = math.inf


@asynccontextmanager
async def telling() -> AsyncIterator[Teller]:
    """Serve in this event loop."""
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", _complete, methods=["POST"]),
            Route("/v1/completions", _complete, methods=["POST"]),
            Route("/v1/models", _models),
        ]
    )
    port = free_port()
    app.state.teller = Teller(f"http://127.0.0.1:{port}/v1")
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    )
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started, "the storyteller to listen")
        yield app.state.teller
    finally:
        server.should_exit = True
        await serving
