"""Encoder of hosted tools for hosts of the Responses API.

The canonical format is OpenAI's; hosts support different fields of it. Also here: the
`include` values that make a host return its tools' results.

Source: https://platform.openai.com/docs/guides/tools
Source: https://docs.x.ai/docs/guides/tools/overview
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from llm.wire.hosted_tools import (
    RemoteServer,
    Search,
    Tool,
    cannot,
    kind_of,
    needed,
    no_such_tool,
    refuse_container,
)

Dialect = Literal["openai", "xai", "meta"]

_INCLUDES = {
    "web_search": "web_search_call.action.sources",
    "file_search": "file_search_call.results",
    "code_interpreter": "code_interpreter_call.outputs",
}
#: Optional fields of a search that xAI does not have.
_WISHES = frozenset({"search_context_size", "user_location", "external_web_access"})


def hosted(tool: Tool, dialect: Dialect) -> dict[str, Any]:
    """The tool in the format of `dialect`; one of an unknown type unchanged.

    Raises BadRequest for settings that the host does not have.
    """
    kind, told = kind_of(tool), dict(tool)
    match kind:
        case "web_search":
            return _search(tool, dialect)
        case "file_search":
            needed(tool, "vector_store_ids")
        case "code_interpreter" if dialect == "xai":
            refuse_container(tool)
            told.pop("container", None)
        case "code_interpreter":
            told.setdefault("container", {"type": "auto"})
        case "mcp":
            return _server(tool, dialect)
        case "computer_use" if dialect != "openai":
            raise no_such_tool(tool)
        case "computer_use" if tool["type"] != "computer":
            told["type"] = "computer_use_preview"
            for name in ("display_width", "display_height", "environment"):
                needed(tool, name)
    return told


def includes(tools: Iterable[Tool]) -> list[str]:
    """Values for `include`. The search's preview version cannot report its sources."""
    named = [_INCLUDES.get(kind_of(tool) or "") for tool in tools if not _is_old(tool)]
    return list(dict.fromkeys(name for name in named if name))


def is_degraded(tool: Tool, dialect: Dialect) -> bool:
    """Whether the tool has an optional setting that the host ignores."""
    if dialect != "xai" or kind_of(tool) != "web_search":
        return False
    wanted = {n: tool.get(n) for n in _WISHES if tool.get(n) is not None}
    return bool(wanted) and wanted != {"search_context_size": "medium"}


def _search(tool: Tool, dialect: Dialect) -> dict[str, Any]:
    search, told = Search.of(tool), dict(tool)
    match dialect:
        case "openai" if search.blocked:
            raise cannot(tool, "leaves no domain out; leave 'blocked_domains' out")
        case "meta":
            search.refuse_domains(tool)
        case "xai":
            told = {n: v for n, v in told.items() if n not in _WISHES}
            told["type"] = "web_search"
            lists = {
                "allowed_domains": list(search.allowed),
                "excluded_domains": list(search.blocked),
            }
            told["filters"] = {name: value for name, value in lists.items() if value}
    return {n: v for n, v in told.items() if v not in (None, {})}


def _server(tool: Tool, dialect: Dialect) -> dict[str, Any]:
    server, told = RemoteServer.of(tool), dict(tool)
    if dialect == "xai":
        server.refuse_asking()
        server.refuse_read_only(tool)
        told.pop("require_approval", None)
        if server.allowed is not None:
            told["allowed_tools"] = list(server.allowed)
    elif not (server.url or tool.get("connector_id") or tool.get("tunnel_id")):
        needed(tool, "server_url")
    if dialect == "xai" and not server.url:
        needed(tool, "server_url")
    return told


def _is_old(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("type")).startswith("web_search_preview")
