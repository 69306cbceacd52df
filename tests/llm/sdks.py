"""What the vendors' own SDKs make of bytes of ours, as one answer in common words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anthropic
import httpx2
import openai

_QUESTION = [{"role": "user", "content": "?"}]
_ENDED_EARLY = (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError)
_body = b""


@dataclass
class Heard:
    text: str = ""
    refusal: str = ""
    thought: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)  # id, name, input
    usage: tuple[int, int, int, int] | None = None  # in, cached, out, reasoned
    finish: str | None = None
    final: Any = None  # the SDK's own object


def heard(target: str, body: bytes) -> Heard:
    """Raises the SDK's APIError where the stream tells of one."""
    global _body
    _body = body
    return {"openai": _chat, "anthropic": _messages, "responses": _responses}[target]()


def _answer(request: httpx2.Request) -> httpx2.Response:
    headers = {"content-type": "text/event-stream"}
    return httpx2.Response(200, headers=headers, content=_body)


@cache
def _openai() -> openai.OpenAI:
    http = httpx2.Client(transport=httpx2.MockTransport(_answer))
    return openai.OpenAI(api_key="x", base_url="http://sdk.test/v1", http_client=http)


@cache
def _anthropic() -> anthropic.Anthropic:
    http = httpx2.Client(transport=httpx2.MockTransport(_answer))
    return anthropic.Anthropic(
        api_key="x", base_url="http://sdk.test", http_client=http
    )


def _chat() -> Heard:
    create = _openai().chat.completions.stream
    with create(model="m", messages=_QUESTION) as stream:
        with suppress(*_ENDED_EARLY):
            stream.until_done()
        final = stream.current_completion_snapshot
    [choice] = final.choices
    said = choice.message
    told = Heard(said.content or "", said.refusal or "", final=final)
    told.thought = getattr(said, "reasoning_content", None) or ""
    told.finish = choice.finish_reason
    for call in said.tool_calls or ():
        arguments = call.function.arguments
        told.calls.append((call.id, call.function.name, parsed(arguments)))
    if usage := final.usage:
        told.usage = (
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens,
            usage.completion_tokens_details.reasoning_tokens,
        )
    return told


def _messages() -> Heard:
    create = _anthropic().messages.stream
    with create(model="m", max_tokens=9, messages=_QUESTION) as stream:
        told = Heard()
        _in_order(list(stream))
        final = told.final = stream.get_final_message()
    for block in final.content:
        match block.type:
            case "text":
                told.text += block.text
            case "thinking":
                told.thought += block.thinking
            case "tool_use":
                told.calls.append((block.id, block.name, block.input))
    usage = final.usage
    cached = usage.cache_read_input_tokens or 0
    reasoned = usage.output_tokens_details.thinking_tokens
    read = usage.input_tokens + cached
    told.usage = (read, cached, usage.output_tokens, reasoned)
    told.finish = final.stop_reason
    return told


def _in_order(events: list[Any]) -> None:
    """Blocks are begun, lengthened and ended one after another, from 0 on."""
    index, opened = -1, False
    for event in events:
        match event.type:
            case "content_block_start":
                assert not opened
                assert event.index == index + 1
                index, opened = event.index, True
            case "content_block_delta" | "content_block_stop":
                assert opened
                assert event.index == index
                opened = event.type == "content_block_delta"
    assert not opened


def _responses() -> Heard:
    told = Heard()
    with _openai().responses.create(model="m", input="?", stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == [*range(len(events))]
    told.text = "".join(_deltas(events, "response.output_text.delta"))
    told.refusal = "".join(_deltas(events, "response.refusal.delta"))
    told.final = final = events[-1].response
    told.finish = final.status
    for item in final.output:
        if item.type == "function_call":
            told.calls.append((item.call_id, item.name, parsed(item.arguments)))
    if final.status == "failed":
        raise openai.APIError(
            final.error.message, httpx2.Request("POST", "/"), body=None
        )
    if usage := final.usage:
        told.usage = (
            usage.input_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens,
            usage.output_tokens_details.reasoning_tokens,
        )
    return told


def _deltas(events: list[Any], kind: str) -> Iterator[str]:
    return (event.delta for event in events if event.type == kind)


def parsed(arguments: str) -> Any:
    """What is no JSON stays as it is."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments
