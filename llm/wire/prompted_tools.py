"""Tools for models without tool calling, described in the prompt.

The instructions describe the tools and how to call them, namely as `{"tool": name,
"input": {...}}` in plain text; in the history, calls and outputs become text.
`prompted_calls` parses the model's answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from llm.errors import BadRequest
from llm.wire.item_prefix_cache import SplitItems
from llm.wire.items import Item, message
from llm.wire.request import Request


def with_prompted_tools(request: Request) -> Request:
    """`request` for a model without tools. Raises BadRequest for a hosted tool."""
    tools, note = _available_tools(request)
    manual = _manual(tools, note) if tools else ""
    return replace(
        request,
        instructions="\n\n".join(filter(None, [request.instructions, manual])),
        items=_calls_to_text(request.items),
        tools=(),
        tool_choice=None,
        parallel_tool_calls=None,
    )


def available_tool_names(request: Request) -> frozenset[str]:
    tools, _ = _available_tools(request)
    return _names(tuple(tool["name"] for tool in tools))


@lru_cache(maxsize=100)
def _names(names: tuple[str, ...]) -> frozenset[str]:
    """One shared set for all requests with the same tools."""
    return frozenset(names)


def _available_tools(request: Request) -> tuple[Sequence[Mapping[str, Any]], str]:
    """The tools that `tool_choice` allows, and a sentence about the choice."""
    tools: Sequence[Mapping[str, Any]] = request.tools
    for tool in tools:
        if tool.get("type") != "function":
            raise BadRequest(
                "This model has no native tools; it supports functions, but not"
                f" {tool.get('type')!r}.",
                param="tools",
            )
    note = ""
    match request.tool_choice:
        case "none":
            return (), ""
        case "required":
            note = "Your next answer must use a tool."
        case {"type": "allowed_tools", "tools": list(allowed), **more}:
            names = [tool.get("name") for tool in allowed]
            tools = [tool for tool in tools if tool["name"] in names]
            if more.get("mode") == "required":
                note = "Your next answer must use a tool."
        case {"name": str(name)}:
            tools = [tool for tool in tools if tool["name"] == name]
            note = f"Your next answer must use the tool {name}."
    if request.parallel_tool_calls is False:
        note = f"{note} Use one tool at a time.".lstrip()
    return tools, note


def _manual(tools: Sequence[Mapping[str, Any]], note: str) -> str:
    return "\n\n".join(filter(None, [_HOW_TO_CALL, note, *map(_describe, tools)]))


_HOW_TO_CALL = """\
# Tools

You can use the tools below. To use one, end your answer with a JSON object of this \
form, on a line of its own:

{"tool": "<name>", "input": {<what the tool takes>}}

"input" must fit the tool's JSON Schema. To use several tools at once, write one such \
object after another, each on its own line. Write nothing after them: the results come \
in the next message. Do not invent results. Where no tool is needed, answer in plain \
words."""


def _describe(tool: Mapping[str, Any]) -> str:
    schema = tool.get("parameters") or {"type": "object", "properties": {}}
    lines = [
        f"## {tool['name']}",
        str(tool.get("description") or "").strip(),
        f"JSON Schema of its input: {json.dumps(schema, ensure_ascii=False)}",
    ]
    return "\n".join(filter(None, lines))


def _calls_to_text(items: Sequence[Item]) -> Sequence[Item]:
    """Convert the items; a cached prefix without tool items stays cached."""
    if isinstance(items, SplitItems) and not items.prefix.has_item(
        "tools", _is_tool_item
    ):
        return SplitItems(items.prefix, list(_iter_text_items(items.new)))
    return list(_iter_text_items(items))


def _is_tool_item(item: Item) -> bool:
    return item.get("type") in ("function_call", "function_call_output")


def _iter_text_items(items: Sequence[Item]) -> Iterator[Item]:
    """Convert calls to assistant messages and a step's outputs to one user message."""
    names: dict[str, str] = {}
    results: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            results += _result(names.get(item["call_id"], "tool"), item["output"])
            continue
        if results:
            yield _user_message(results)
            results = []
        if kind == "function_call":
            names[item["call_id"]] = item["name"]
            yield message("assistant", _call_to_text(item))
        else:
            yield item
    if results:
        yield _user_message(results)


def _call_to_text(call: Item) -> str:
    name = json.dumps(call["name"], ensure_ascii=False)
    return f'{{"tool": {name}, "input": {call["arguments"] or "{}"}}}'


def _result(name: str, output: str | Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(output, str):
        text = f"Result of {name}:\n{output}"
        return [{"type": "input_text", "text": text}]
    return [{"type": "input_text", "text": f"Result of {name}:"}, *output]


def _user_message(parts: list[dict[str, Any]]) -> Item:
    return {**message("user", ""), "content": parts}
