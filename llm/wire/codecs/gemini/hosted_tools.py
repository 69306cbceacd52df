"""Encoder of Google's own tools for generateContent.

In: a tool in the format of the Responses API, or in Google's own (`google_maps`). Out:
an entry of `tools`. Vertex AI and the Gemini API support different tools.

Source: https://ai.google.dev/api/caching#Tool
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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

#: Google's own tools without options.
_PLAIN = {
    "code_execution": "codeExecution",
    "google_maps": "googleMaps",
    "google_search": "googleSearch",
    "url_context": "urlContext",
}
_OPERATORS = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def convert_hosted_tool(tool: Tool, *, vertex: bool) -> dict[str, Any]:
    """Raises BadRequest for a tool that Google, or this API, does not have."""
    if name := _PLAIN.get(str(tool.get("type"))):
        return {name: {}}
    match kind_of(tool):
        case "web_search":
            return {"googleSearch": _search(tool, vertex)}
        case "code_interpreter":
            refuse_container(tool)
            return {"codeExecution": {}}
        case "computer_use":
            return {"computerUse": {"environment": _environment(tool)}}
        case "file_search" if not vertex:
            return {"fileSearch": _file_search(tool)}
        case "mcp" if not vertex:
            return {"mcpServers": [_server(tool)]}
    raise no_such_tool(tool)


def runs_at_google(tool: Mapping[str, Any]) -> bool:
    """Whether Google runs the tools of this entry of `tools`."""
    return not {"functionDeclarations", "computerUse"} & tool.keys()


def is_degraded(tool: Tool) -> bool:
    """Whether the tool has an optional setting that Google does not have."""
    if kind_of(tool) != "web_search":
        return False
    search = WebSearchOptions.of(tool)
    return bool(search.location) or search.size not in (None, "medium")


def _search(tool: Tool, vertex: bool) -> dict[str, Any]:
    search = WebSearchOptions.of(tool)
    if search.allowed:
        raise not_supported(tool, "does not support 'allowed_domains'; leave it out")
    if search.blocked and not vertex:
        raise not_supported(tool, "does not support 'blocked_domains'; leave it out")
    return {"excludeDomains": list(search.blocked)} if search.blocked else {}


def _file_search(tool: Tool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "fileSearchStoreNames": list(require_field(tool, "vector_store_ids"))
    }
    if limit := tool.get("max_num_results"):
        entry["topK"] = limit
    if filters := tool.get("filters"):
        entry["metadataFilter"] = _filter(tool, filters)
    return entry


def _filter(tool: Tool, condition: Mapping[str, Any]) -> str:
    """OpenAI's filter as an expression in Google's filter language.

    Source: https://google.aip.dev/160
    """
    kind = str(condition.get("type"))
    if kind in ("and", "or"):
        parts = [_filter(tool, each) for each in condition.get("filters") or ()]
        return f" {kind.upper()} ".join(f"({part})" for part in parts)
    if kind not in _OPERATORS or not condition.get("key"):
        raise not_supported(tool, f"does not support filters of the type {kind!r}")
    value = json.dumps(condition.get("value"), ensure_ascii=False)
    return f"{condition['key']} {_OPERATORS[kind]} {value}"


def _environment(tool: Tool) -> str:
    browser = tool.get("environment") in (None, "browser")
    return "ENVIRONMENT_BROWSER" if browser else "ENVIRONMENT_DESKTOP"


def _server(tool: Tool) -> dict[str, Any]:
    server = RemoteServer.of(tool)
    server.refuse_asking()
    if not server.url:
        raise not_supported(tool, "supports only 'server_url'")
    if server.allowed is not None or server.read_only:
        raise not_supported(tool, "does not support 'allowed_tools'; leave it out")
    headers = dict(server.headers)
    if server.authorization:
        headers["Authorization"] = f"Bearer {server.authorization}"
    transport: dict[str, Any] = {"url": server.url}
    if headers:
        transport["headers"] = headers
    return {"name": server.label, "streamableHttpTransport": transport}
