"""Tools that take free text, for hosts whose API has functions alone. Pure.

In: a request. Out: the same with a function of one text for each such tool, also in the
choice; a call of it becomes one of the tool again. Codex's `apply_patch` is such.

Source: https://platform.openai.com/docs/guides/function-calling#custom-tools
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llm.wire.codecs.anthropic.tools import FREE_TEXT
from llm.wire.deltas import (
    CloseDelta,
    Delta,
    ItemDelta,
    Key,
    ProofDelta,
    ToolCallDelta,
)
from llm.wire.item_prefix_cache import SplitItems
from llm.wire.items import Item, new_id
from llm.wire.request import Request

_INPUT = "input"  # the property of `FREE_TEXT`
_FUNCTION_TYPES = {
    "custom_tool_call": "function_call",
    "custom_tool_call_output": "function_call_output",
}


def with_functions(request: Request) -> tuple[Request, Collection[str]]:
    """The request and the names of its tools that take free text; the request itself if
    there is none."""
    names = {str(tool.get("name")) for tool in request.tools if _takes_text(tool)}
    if not names:
        return request, ()
    tools = [_function(tool) if _takes_text(tool) else tool for tool in request.tools]
    choice = _choice(request.tool_choice)
    return replace(request, tools=tools, tool_choice=choice), names


def with_function_items(items: Sequence[Item]) -> Sequence[Item]:
    """The history with calls of functions, for models without any tools; a cached
    prefix without calls of free text stays cached."""
    if isinstance(items, SplitItems):
        if not items.prefix.has_item("free_text", _has_text):
            return SplitItems(
                items.prefix, [_function_item(each) for each in items.new]
            )
    elif not any(map(_has_text, items)):
        return items
    return [_function_item(each) for each in items]


@dataclass(slots=True)
class _Call:
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    proofs: list[ProofDelta] = field(default_factory=list)


class CallRestorer:
    """Makes calls of the named functions calls with free text, each in one piece."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._open: dict[Key, _Call] = {}

    def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
        return [out for delta in deltas for out in self._feed(delta)]

    def close(self) -> list[Delta]:
        """Calls that were cut off."""
        return [
            delta for key in list(self._open) for delta in self._end(key, whole=False)
        ]

    def _feed(self, delta: Delta) -> Iterator[Delta]:
        match delta:
            case ToolCallDelta(key) if key in self._open or delta.name in self._names:
                call = self._open.setdefault(key, _Call())
                call.call_id = call.call_id or delta.call_id
                call.name = call.name or delta.name
                call.arguments.append(delta.arguments)
            case ProofDelta(key) if key in self._open:
                self._open[key].proofs.append(delta)
            case CloseDelta(key) if key in self._open:
                yield from self._end(key, delta.arguments, whole=delta.complete)
            case _:
                yield delta

    def _end(
        self, key: Key, arguments: str | None = None, *, whole: bool
    ) -> Iterator[Delta]:
        call = self._open.pop(key)
        item = {
            "type": "custom_tool_call",
            "call_id": call.call_id or new_id("call"),
            "name": call.name,
            "input": _text_of(
                "".join(call.arguments) if arguments is None else arguments
            ),
            "status": "completed" if whole else "incomplete",
        }
        # The proof belongs to an item that is open.
        yield ItemDelta(key, item)
        yield from call.proofs
        yield ItemDelta(key, item, done=True)


def _takes_text(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "custom" and "input_schema" not in tool


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    description = tool.get("description") or ""
    match tool.get("format"):
        case {"type": "grammar", "syntax": syntax, "definition": definition}:
            note = f"`{_INPUT}` must follow this grammar ({syntax}):\n{definition}"
            description = f"{description}\n\n{note}".strip()
    return {
        "type": "function",
        "name": tool["name"],
        "description": description,
        "parameters": dict(FREE_TEXT),
    }


def _choice(
    choice: str | dict[str, Any] | None,
) -> str | dict[str, Any] | None:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        return {**choice, "tools": [_choice(tool) for tool in choice["tools"]]}
    return {**choice, "type": "function"} if choice.get("type") == "custom" else choice


def _has_text(item: Item) -> bool:
    return item.get("type") in _FUNCTION_TYPES


def _function_item(item: Item) -> Item:
    if not _has_text(item):
        return item
    changed = {**item, "type": _FUNCTION_TYPES[item["type"]]}
    if _INPUT in changed:
        changed["arguments"] = json.dumps({_INPUT: changed.pop(_INPUT)})
    return changed


def _text_of(arguments: str) -> str:
    """What the model wrote, if it is not the object that it should be."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = parsed.get(_INPUT) if isinstance(parsed, dict) else None
    return text if isinstance(text, str) else arguments
