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
from llm.wire.request import Request

#: Finds a name that OpenAI's APIs do not take.
UNSENT_NAME = re.compile(r"[^a-zA-Z0-9_-]|.{65}")
_CLIENT_TOOLS = frozenset({"function", "custom"})
_CALLS = frozenset({"function_call", "custom_tool_call"})


def with_wire_names(request: Request) -> tuple[Request, Mapping[str, str]]:
    """The request itself if all names may stay."""
    declared = [str(t["name"]) for t in request.tools if t["type"] in _CLIENT_TOOLS]
    names = {name: sent for name in declared if (sent := wire_name(name)) != name}
    if not names:
        return request, {}
    renamed = replace(
        request,
        tools=[_rename(tool, names, _CLIENT_TOOLS) for tool in request.tools],
        items=[_rename(item, names, _CALLS) for item in request.items],
        tool_choice=_choice(request.tool_choice, names),
    )
    return renamed, {sent: name for name, sent in names.items()}


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
