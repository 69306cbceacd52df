"""Scripted hosts over respx: by default in Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
import orjson
import respx

from llm.capabilities import Capabilities
from llm.provider import Endpoint, Provider, Route
from llm.providers import all_providers
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

from .chat import DONE, call, chunk, frames

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
CODEC = OpenAIChatCodec()
PROVIDER = Provider(
    name="host", label="Host", base_url="https://a.test/v1", codecs={"chat": CODEC}
)


def route(
    name: str = "a", capabilities: Mapping[str, Any] | None = None, **fields: Any
) -> Route:
    endpoint = Endpoint(
        provider=PROVIDER,
        codec=CODEC,
        api_key=f"sk-{name}",
        base_url=f"https://{name}.test/v1",
        route=f"{name}:1",
    )
    return Route(
        endpoint=endpoint,
        model=f"{name}-model",
        name=name,
        provider_name=name,
        capabilities=Capabilities.from_dict(capabilities or {}),
        **fields,
    )


def route_at(
    kind: str,
    codec: str = "",
    model: str = "a-model",
    capabilities: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Route:
    """To a provider of this kind, at the address "https://a.test"."""
    provider = all_providers()[kind]
    endpoint = Endpoint(
        provider=provider,
        codec=provider.codec(codec),
        api_key="sk-a",
        base_url="https://a.test",
        route="a:1",
        allow_private_network=fields.pop("allow_private_network", False),
    )
    return Route(
        endpoint=endpoint,
        model=model,
        name="a",
        provider_name=kind,
        capabilities=Capabilities.from_dict(capabilities or {}),
        **fields,
    )


def text_stream(*texts: str, finish: str = "stop", usage: Any = USAGE) -> bytes:
    pieces = [chunk({"content": text}) for text in texts]
    return frames(*pieces, chunk(finish=finish), chunk(usage=usage), DONE)


def calls(name: str, arguments: Any, before: str = "") -> bytes:
    chunks = [chunk({"content": before})] if before else []
    fragment = call(0, "call_1", name, orjson.dumps(arguments).decode())
    ending = [chunk(finish="tool_calls"), chunk(usage=USAGE), DONE]
    return frames(*chunks, chunk(fragment), *ending)


def breaks_off(*texts: str) -> bytes:
    return frames(*(chunk({"content": text}) for text in texts))


def refuses(status: int, code: str = "", **headers: str) -> httpx.Response:
    body = {"error": {"message": f"planted {status}", "code": code or None}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json=body, headers=named)


class Host:
    """Gives one answer after another, and records its requests."""

    def __init__(self, router: respx.MockRouter, name: str, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        address = rf"^https://{name}\.test/"
        router.post(url__regex=address).mock(side_effect=self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(json.loads(request.content))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        number = str(len(self.requests))
        headers = {"content-type": "text/event-stream", "x-request-id": f"req_{number}"}
        return httpx.Response(200, content=answer, headers=headers)
