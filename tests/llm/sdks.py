"""What the vendors' own SDKs make of bytes of ours, as one answer in common words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anthropic
import httpx
import httpx2
import openai
from google import genai
from google.genai import types as genai_types

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
    """Raises the SDK's APIError if the stream contains one."""
    global _body
    _body = body
    readers = {
        "openai": _chat,
        "anthropic": _messages,
        "gemini": _gemini,
        "responses": _responses,
    }
    return readers[target]()


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
    message = choice.message
    reply = Heard(message.content or "", message.refusal or "", final=final)
    reply.thought = getattr(message, "reasoning_content", None) or ""
    reply.finish = choice.finish_reason
    for call in message.tool_calls or ():
        arguments = call.function.arguments
        reply.calls.append((call.id, call.function.name, parsed(arguments)))
    if usage := final.usage:
        reply.usage = (
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens,
            usage.completion_tokens_details.reasoning_tokens,
        )
    return reply


def _messages() -> Heard:
    create = _anthropic().messages.stream
    with create(model="m", max_tokens=9, messages=_QUESTION) as stream:
        reply = Heard()
        _in_order(list(stream))
        final = reply.final = stream.get_final_message()
    for block in final.content:
        match block.type:
            case "text":
                reply.text += block.text
            case "thinking":
                reply.thought += block.thinking
            case "tool_use":
                reply.calls.append((block.id, block.name, block.input))
    usage = final.usage
    cached = usage.cache_read_input_tokens or 0
    reasoned = usage.output_tokens_details.thinking_tokens
    cached_anew = usage.cache_creation_input_tokens or 0
    read = usage.input_tokens + cached + cached_anew
    reply.usage = (read, cached, usage.output_tokens, reasoned)
    reply.finish = final.stop_reason
    return reply


@cache
def _google() -> genai.Client:
    http = httpx.Client(transport=httpx.MockTransport(_google_answer))
    options = genai_types.HttpOptions(base_url="http://sdk.test", httpx_client=http)
    return genai.Client(api_key="x", http_options=options)


def _google_answer(request: httpx.Request) -> httpx.Response:
    headers = {"content-type": "text/event-stream"}
    return httpx.Response(200, headers=headers, content=_body)


def _gemini() -> Heard:
    reply = Heard()
    create = _google().models.generate_content_stream
    for chunk in create(model="m", contents="?"):
        for candidate in chunk.candidates or ():
            reply.finish = candidate.finish_reason or reply.finish
            for part in (candidate.content and candidate.content.parts) or ():
                if part.function_call:
                    call = part.function_call
                    reply.calls.append((call.id or "", call.name, call.args or {}))
                elif part.thought:
                    reply.thought += part.text or ""
                else:
                    reply.text += part.text or ""
        if usage := chunk.usage_metadata:
            thought = usage.thoughts_token_count or 0
            reply.usage = (
                usage.prompt_token_count or 0,
                usage.cached_content_token_count or 0,
                (usage.candidates_token_count or 0) + thought,
                thought,
            )
        reply.final = chunk
    return reply


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
    reply = Heard()
    with _openai().responses.create(model="m", input="?", stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == [*range(len(events))]
    reply.text = "".join(_deltas(events, "response.output_text.delta"))
    reply.refusal = "".join(_deltas(events, "response.refusal.delta"))
    reply.final = final = events[-1].response
    reply.finish = final.status
    for item in final.output:
        if item.type == "function_call":
            reply.calls.append((item.call_id, item.name, parsed(item.arguments)))
    if final.status == "failed":
        raise openai.APIError(
            final.error.message, httpx2.Request("POST", "/"), body=None
        )
    if usage := final.usage:
        reply.usage = (
            usage.input_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens,
            usage.output_tokens_details.reasoning_tokens,
        )
    return reply


def _deltas(events: list[Any], kind: str) -> Iterator[str]:
    return (event.delta for event in events if event.type == kind)


def parsed(arguments: str) -> Any:
    """What is no JSON stays as it is."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments
