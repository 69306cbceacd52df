"""A real upstream that answers as a model does, and records what it was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from llm.provider import Endpoint, Route
from llm.providers import all_providers
from tests.llm.chat import DONE, call, chunk, frames
from tests.tools.servers import Server, ok, serving


@dataclass
class Model:
    """Answers one request after another; `reply` sees what it was asked."""

    replies: list[Any]
    server: Server = field(default_factory=Server)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.server.bodies]

    @property
    def route(self) -> Route:
        provider = all_providers()["openai_compatible"]
        endpoint = Endpoint(
            provider=provider,
            codec=provider.codecs["openai_chat"],
            base_url=self.server.url("/v1"),
            api_key="x",
            allow_private_network=True,
        )
        prices = {"input": 1.0, "output": 2.0}  # USD per million tokens
        return Route(endpoint=endpoint, model="m", name="m", prices=prices)


@asynccontextmanager
async def model_saying(*replies: Any) -> AsyncIterator[Model]:
    model = Model(list(replies))

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        next_reply = model.replies.pop(0)
        if isinstance(next_reply, asyncio.Event):
            await next_reply.wait()
            next_reply = model.replies.pop(0)
        writer.write(next_reply)
        await writer.drain()

    async with serving(reply) as model.server:
        yield model


def said(*chunks: Any, finish: str = "stop", tokens: tuple[int, int] = (10, 5)):
    read, written = tokens
    usage = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": read // 2},
        "completion_tokens_details": {"reasoning_tokens": written // 2},
    }
    body = frames(*chunks, chunk(finish=finish), chunk(usage=usage), DONE)
    return ok(body, "text/event-stream", "Connection: close")


def says(text: str, **fields: Any) -> bytes:
    return said(chunk({"content": text}), **fields)


def calls(*wanted: tuple[str, dict[str, Any]], thought: str = "", **fields: Any):
    """Calls, in parallel, after a thought."""
    before = [chunk({"reasoning_content": thought})] if thought else []
    made = [
        chunk(call(n, f"call_{name}_{n}", name, orjson.dumps(given).decode()))
        for n, (name, given) in enumerate(wanted)
    ]
    return said(*before, *made, finish="tool_calls", **fields)


def outputs(request: dict[str, Any]) -> list[str]:
    return [each["content"] for each in request["messages"] if each["role"] == "tool"]
