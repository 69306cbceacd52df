"""What a response repeats of its request, in the shapes that the schema has for it.

Source: https://www.openresponses.org/specification
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.wire.request import Request

_NUMBERS = (
    "frequency_penalty",
    "max_output_tokens",
    "max_tool_calls",
    "presence_penalty",
    "temperature",
    "top_logprobs",
    "top_p",
)
_SAME = (
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


def echo_of(body: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """`body` is the caller's, `request` what became of it."""
    echo = {name: body[name] for name in _SAME if body.get(name) is not None}
    echo["metadata"] = dict(body.get("metadata") or {})
    echo["tools"] = [_tool(tool) for tool in body.get("tools") or () if _is_told(tool)]
    if isinstance(instructions := body.get("instructions"), str):
        echo["instructions"] = instructions
    if (choice := body.get("tool_choice")) is not None and request.tools:
        echo["tool_choice"] = choice
    if body.get("reasoning"):
        known = {n: body["reasoning"].get(n) for n in ("effort", "summary")}
        echo["reasoning"] = known
    if body.get("text"):
        echo["text"] = _text(body["text"])
    return echo


def _is_told(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "function"


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: tool.get(name) for name in ("description", "parameters", "strict")}
    return {"type": "function", "name": tool["name"], **given}


def _text(text: Mapping[str, Any]) -> dict[str, Any]:
    form = dict(text.get("format") or {"type": "text"})
    if form["type"] == "json_schema":
        form = {"description": None, "strict": False, **form}
    verbosity = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    return {"format": form, **verbosity}
