"""Names of tools for OpenAI's APIs, which take fewer than Anthropic's. Pure.

In: a request. Out: the same with names that each host takes, in the declarations, the
choice and the history, and the declared names by those. Anthropic's API takes 128
characters and OpenAI's 64, of which Claude Code's names of plugins' tools have more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llm.wire.codecs.anthropic.messages import wire_name
from llm.wire.item_prefix_cache import has_item
from llm.wire.items import CALLS, Item
from llm.wire.request import Request

#: Finds a name that OpenAI's APIs do not take.
UNSENT_NAME = re.compile(r"[^a-zA-Z0-9_-]|.{65}")
_CLIENT_TOOLS = frozenset({"function", "custom"})


def with_wire_names(request: Request) -> tuple[Request, Mapping[str, str]]:
    """The request itself if all names may stay."""
    declared = [str(t["name"]) for t in request.tools if t["type"] in _CLIENT_TOOLS]
    names = {name: wire_name(name) for name in declared if UNSENT_NAME.search(name)}
    if not names and not has_item(request.items, "unsent names", _has_unsent_name):
        return request, {}
    renamed = replace(
        request,
        tools=[_rename(tool, names, _CLIENT_TOOLS) for tool in request.tools],
        items=[_rename_call(item) for item in request.items],
        tool_choice=_choice(request.tool_choice, names),
    )
    return renamed, {sent: name for name, sent in names.items()}


def _has_unsent_name(item: Item) -> bool:
    """Only of calls outside namespaces, whose functions have their own names."""
    if item.get("type") not in CALLS or item.get("namespace"):
        return False
    return UNSENT_NAME.search(str(item["name"])) is not None


def _rename_call(item: Item) -> Item:
    """A call may be of a tool that this request no longer declares."""
    if not _has_unsent_name(item):
        return item
    return {**item, "name": wire_name(str(item["name"]))}


def _choice(
    choice: str | dict[str, Any] | None, names: Mapping[str, str]
) -> str | dict[str, Any] | None:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        tools = [_rename(tool, names, _CLIENT_TOOLS) for tool in choice["tools"]]
        return {**choice, "tools": tools}
    return _rename(choice, names, _CLIENT_TOOLS)


def _rename(
    entry: dict[str, Any], names: Mapping[str, str], kinds: frozenset[str]
) -> dict[str, Any]:
    if entry.get("type") not in kinds or entry.get("name") not in names:
        return entry
    return {**entry, "name": names[entry["name"]]}
