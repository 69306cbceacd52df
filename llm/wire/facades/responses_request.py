"""Reader of bodies of `POST /responses`, and the fields that a response repeats.

`Request` has the same fields as the body.

Source: https://platform.openai.com/docs/api-reference/responses/create
Source: https://www.openresponses.org/specification
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import orjson

from llm.wire.codecs.call_order import separate_equal_ids
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.codecs.openai_responses.forwarding import has_own_id
from llm.wire.facades.field_checks import whole
from llm.wire.facades.request_reading import assistant_items
from llm.wire.items import Issuer, Item, user_message
from llm.wire.request import Request

_SAME = (
    "frequency_penalty",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
)
#: `store` is set by the codec, as we keep no state at the provider.
_READ = frozenset(
    {
        *_SAME,
        "input",
        "instructions",
        "model",
        "parley",
        "store",
        "stream",
        "tools",
    }
)
_NUMBERS = (
    "frequency_penalty",
    "max_output_tokens",
    "max_tool_calls",
    "presence_penalty",
    "temperature",
    "top_logprobs",
    "top_p",
)
#: Types of items that a host takes without their ids.
_WITHOUT_ID = ("custom_tool_call", "function_call", "message")
_ECHOED = (
    *_NUMBERS,
    "background",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "store",
    "truncation",
)
#: Efforts that the standard lacks, mapped to the nearest one.
_EFFORTS = {"minimal": "low", "max": "xhigh"}


def request_of(
    body: Mapping[str, Any],
    codec: OpenAIResponsesCodec | None = None,
    issuer: Issuer | None = None,
) -> Request:
    codec = codec or OpenAIResponsesCodec()
    entries = body.get("input") or ()
    entries = [user_message(entries)] if isinstance(entries, str) else entries
    items: list[Item] = []
    for from_assistant, run in groupby(map(_with_type, entries), _is_from_assistant):
        run_items = list(run)
        items += (
            _decode_assistant(run_items, codec, issuer) if from_assistant else run_items
        )
    same: dict[str, Any] = {name: body.get(name) for name in _SAME}
    same["max_output_tokens"] = whole(body.get("max_output_tokens"))
    return Request(
        model=body["model"],
        items=separate_equal_ids(items) if len(items) > 1 else items,
        instructions=body.get("instructions") or "",
        tools=[
            tool
            for tool in body.get("tools") or ()
            if not tool["type"].startswith("parley:")
        ],
        stream=bool(body.get("stream")),
        issuer=issuer,
        extra={
            name: value
            for name, value in body.items()
            if name not in _READ and value is not None
        },
        **same,
    )


def _with_type(item: Mapping[str, Any]) -> Item:
    return {"type": "message", **item}


def _is_from_assistant(item: Item) -> bool:
    """Whether the assistant made the item, rather than a user, program or tool."""
    if item["type"] == "message":
        return bool(item["role"] == "assistant")
    return not str(item["type"]).endswith(("_output", "_response"))


def _decode_assistant(
    run: Iterable[Item], codec: OpenAIResponsesCodec, issuer: Issuer | None
) -> list[Item]:
    output = [_in_parts(item) for item in run]
    answer = {"status": "completed", "output": output}
    return assistant_items(codec.decode(orjson.dumps(answer)), issuer)


def _in_parts(item: Item) -> Item:
    """Convert the short form of a message, which has a string as content, and parts of
    a user, which hosts refuse here; leave out an id that only this server knows: a host
    would look for it."""
    if item["type"] in _WITHOUT_ID and has_own_id(item):
        item = {name: value for name, value in item.items() if name != "id"}
    if item["type"] != "message":
        return item
    if isinstance(content := item.get("content") or [], str):
        content = [{"type": "output_text", "text": content}]
    return {**item, "content": [_output_part(part) for part in content]}


def _output_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    is_text = part.get("type") in ("input_text", "text")
    return {**part, "type": "output_text"} if is_text else part


# The fields that the response repeats


def echo_of(body: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """`body` is the caller's; `request` was made from it."""
    echo = {name: body[name] for name in _ECHOED if body.get(name) is not None}
    echo["metadata"] = dict(body.get("metadata") or {})
    echo["tools"] = [
        _echo_tool(tool) for tool in body.get("tools") or () if _is_function(tool)
    ]
    if isinstance(instructions := body.get("instructions"), str):
        echo["instructions"] = instructions
    if (choice := body.get("tool_choice")) is not None and request.tools:
        echo["tool_choice"] = _echo_choice(choice)
    if reasoning := body.get("reasoning"):
        effort = reasoning.get("effort")
        nearest = _EFFORTS.get(effort, effort)
        echo["reasoning"] = {"effort": nearest, "summary": reasoning.get("summary")}
    if body.get("text"):
        echo["text"] = _echo_text(body["text"])
    return echo


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "function"


def _echo_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: tool.get(name) for name in ("description", "parameters", "strict")}
    return {"type": "function", "name": tool["name"], **fields}


def _echo_choice(choice: Any) -> Any:
    """The standard has only function tools, so another choice becomes "required"."""
    match choice:
        case {"type": "allowed_tools", "tools": tools}:
            functions = [tool for tool in tools if _is_function(tool)]
            return {**choice, "mode": choice.get("mode") or "auto", "tools": functions}
        case {"type": kind} if kind != "function":
            return "required"
    return choice


def _echo_text(text: Mapping[str, Any]) -> dict[str, Any]:
    form = dict(text.get("format") or {"type": "text"})
    if form["type"] == "json_schema":
        form = {
            **form,
            "name": form.get("name") or "answer",
            "description": form.get("description"),
            "strict": form.get("strict") is True,
            "schema": None,  # the standard forbids repeating it
        }
    verbosity = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    return {"format": form, **verbosity}
