"""Conversions for hosts that lack a feature of the Responses API.

In: tools, choices and schemas in the format of the Responses API. Out: the nearest
equivalent that such a host takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import or_
from typing import Any

from llm.wire.item_prefix_cache import fold_items, has_item
from llm.wire.items import Item

Tool = dict[str, Any]
Choice = str | Mapping[str, Any] | None


def filter_by_choice(tools: Sequence[Tool], choice: Choice) -> list[Tool]:
    """The tools that `choice` allows, for hosts without `tool_choice`."""
    if choice == "none":
        return []
    if not isinstance(choice, Mapping):
        return list(tools)
    choices = choice["tools"] if choice.get("type") == "allowed_tools" else [choice]
    return [
        tool for tool in tools if any(_matches_choice(tool, each) for each in choices)
    ]


def is_forced(choice: Choice) -> bool:
    """Whether the model must call a tool."""
    match choice:
        case {"type": "allowed_tools", **rest}:
            return rest.get("mode") == "required"
        case {"type": _}:
            return True
    return choice == "required"


def _matches_choice(tool: Tool, choice: Mapping[str, Any]) -> bool:
    name = choice.get("name")
    return tool.get("type") == choice.get("type") and name in (None, tool.get("name"))


def has_late_instructions(items: Sequence[Item]) -> bool:
    """Whether instructions follow any other item."""
    both = fold_items(items, "late instructions", _has_late_instructions, or_)
    return bool(both)


def _has_late_instructions(items: Sequence[Item]) -> bool:
    spoken = False
    for item in items:
        if item.get("role") not in ("system", "developer"):
            spoken = True
        elif spoken:
            return True
    return False


def has_detail(items: Sequence[Item]) -> bool:
    """Whether an image has a `detail` other than the default."""
    return has_item(items, "detail", _has_detail)


def _has_detail(item: Item) -> bool:
    return any(part.get("detail") not in (None, "auto") for part in _parts(item))


def _parts(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = item.get("content", item.get("output"))
    if not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, Mapping)]


def open_schema(schema: Any) -> Any:
    """`schema` without `additionalProperties: false`, at any depth."""
    match schema:
        case dict():
            return {
                name: open_schema(value)
                for name, value in schema.items()
                if not (name == "additionalProperties" and value is False)
            }
        case list():
            return [open_schema(value) for value in schema]
    return schema
