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
    Tool,
    WebSearchOptions,
    kind_of,
    no_such_tool,
    not_supported,
    refuse_container,
    require_field,
)

Dialect = Literal["openai", "xai", "meta"]

_INCLUDES = {
    "web_search": "web_search_call.action.sources",
    "file_search": "file_search_call.results",
    "code_interpreter": "code_interpreter_call.outputs",
}
#: Optional fields of a search that xAI does not have.
_OPTIONAL_FIELDS = frozenset(
    {"search_context_size", "user_location", "external_web_access"}
)


def convert_hosted_tool(tool: Tool, dialect: Dialect) -> dict[str, Any]:
    """The tool in the format of `dialect`; one of an unknown type unchanged.

    Raises BadRequest for settings that the host does not have.
    """
    kind, entry = kind_of(tool), dict(tool)
    match kind:
        case "web_search":
            return _search(tool, dialect)
        case "file_search":
            require_field(tool, "vector_store_ids")
        case "code_interpreter" if dialect == "xai":
            refuse_container(tool)
            entry.pop("container", None)
        case "code_interpreter":
            entry.setdefault("container", {"type": "auto"})
        case "mcp":
            return _server(tool, dialect)
        case "computer_use" if dialect != "openai":
            raise no_such_tool(tool)
        case "computer_use" if tool["type"] != "computer":
            entry["type"] = "computer_use_preview"
            for name in ("display_width", "display_height", "environment"):
                require_field(tool, name)
    return entry


def includes(tools: Iterable[Tool]) -> list[str]:
    """Values for `include`. The search's preview version cannot report its sources."""
    named = [_INCLUDES.get(kind_of(tool) or "") for tool in tools if not _is_old(tool)]
    return list(dict.fromkeys(name for name in named if name))


def is_degraded(tool: Tool, dialect: Dialect) -> bool:
    """Whether the tool has an optional setting that the host ignores."""
    if dialect != "xai" or kind_of(tool) != "web_search":
        return False
    wanted = {n: tool.get(n) for n in _OPTIONAL_FIELDS if tool.get(n) is not None}
    return bool(wanted) and wanted != {"search_context_size": "medium"}


def _search(tool: Tool, dialect: Dialect) -> dict[str, Any]:
    search, entry = WebSearchOptions.of(tool), dict(tool)
    match dialect:
        case "openai" if search.blocked:
            raise not_supported(
                tool, "does not support 'blocked_domains'; leave it out"
            )
        case "meta":
            search.refuse_domains(tool)
        case "xai":
            entry = {n: v for n, v in entry.items() if n not in _OPTIONAL_FIELDS}
            entry["type"] = "web_search"
            lists = {
                "allowed_domains": list(search.allowed),
                "excluded_domains": list(search.blocked),
            }
            entry["filters"] = {name: value for name, value in lists.items() if value}
    return {n: v for n, v in entry.items() if v not in (None, {})}


def _server(tool: Tool, dialect: Dialect) -> dict[str, Any]:
    server, entry = RemoteServer.of(tool), dict(tool)
    if dialect == "xai":
        server.refuse_asking()
        server.refuse_read_only(tool)
        entry.pop("require_approval", None)
        if server.allowed is not None:
            entry["allowed_tools"] = list(server.allowed)
    elif not (server.url or tool.get("connector_id") or tool.get("tunnel_id")):
        require_field(tool, "server_url")
    if dialect == "xai" and not server.url:
        require_field(tool, "server_url")
    return entry


def _is_old(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("type")).startswith("web_search_preview")
