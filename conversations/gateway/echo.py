"""The fields of a request that its response repeats, in the shapes of the schema.

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
_COPIED = (
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


def echo_of(body: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """`body` is the caller's; `request` was made from it."""
    echo = {name: body[name] for name in _COPIED if body.get(name) is not None}
    echo["metadata"] = dict(body.get("metadata") or {})
    echo["tools"] = [
        _tool(tool) for tool in body.get("tools") or () if _is_function(tool)
    ]
    if isinstance(instructions := body.get("instructions"), str):
        echo["instructions"] = instructions
    if (choice := body.get("tool_choice")) is not None and request.tools:
        echo["tool_choice"] = _choice(choice)
    if reasoning := body.get("reasoning"):
        effort = reasoning.get("effort")
        nearest = _EFFORTS.get(effort, effort)
        echo["reasoning"] = {"effort": nearest, "summary": reasoning.get("summary")}
    if body.get("text"):
        echo["text"] = _text(body["text"])
    return echo


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "function"


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: tool.get(name) for name in ("description", "parameters", "strict")}
    return {"type": "function", "name": tool["name"], **fields}


def _choice(choice: Any) -> Any:
    """The standard has only function tools, so another choice becomes "required"."""
    match choice:
        case {"type": "allowed_tools", "tools": tools}:
            functions = [tool for tool in tools if _is_function(tool)]
            return {**choice, "mode": choice.get("mode") or "auto", "tools": functions}
        case {"type": kind} if kind != "function":
            return "required"
    return choice


def _text(text: Mapping[str, Any]) -> dict[str, Any]:
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
