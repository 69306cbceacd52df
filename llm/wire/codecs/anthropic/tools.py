"""Encoder of tools and `tool_choice` for Anthropic.

Functions become custom tools; some hosted tools of the Responses API have a counterpart
(web search, code, MCP servers and the screen); tools in Anthropic's own format
(`web_search_20260318`) are sent unchanged.

Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm.errors import BadRequest
from llm.wire.codecs.anthropic.messages import wire_name
from llm.wire.codecs.anthropic.schema import Allowance, object_schema, to_grammar_schema
from llm.wire.hosted_tools import (
    RemoteServer,
    Tool,
    WebSearchOptions,
    kind_of,
    no_such_tool,
    not_supported,
    refuse_container,
)

CODE_EXECUTION = "code_execution"

_NATIVE = re.compile(r"[a-z_0-9]+_20\d{6}|mcp_toolset|custom")
#: Names of hosted tools in a `tool_choice`.
_HOSTED_NAMES = {"web_search": "web_search", "code_interpreter": CODE_EXECUTION}
_CHOICES = {"required": "any"}
FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
_NO_INPUT: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(slots=True)
class Tools:
    """The `tools` and `mcp_servers` of a request, and its `degraded` options."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    servers: list[dict[str, Any]] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)
    allowance: Allowance = field(default_factory=Allowance)  # of strict schemas

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> Tools:
        """Raises BadRequest for a tool that Anthropic does not have."""
        converted = cls()
        for tool in tools:
            converted.tools.append(converted._tool(tool))
        return converted

    @property
    def runs_code(self) -> bool:
        return any(t.get("name") == CODE_EXECUTION for t in self.tools)

    def _tool(self, tool: Tool) -> dict[str, Any]:
        match tool.get("type"):
            case "function":
                return self._function(tool)
            case "custom" if "input_schema" not in tool:
                self.degraded.append("tools")
                return _custom_tool(tool, dict(FREE_TEXT))
            case str(kind) if _NATIVE.fullmatch(kind):
                return dict(tool)
        match kind_of(tool):
            case "web_search":
                return self._web_search(tool)
            case "code_interpreter":
                refuse_container(tool)
                return {"type": "code_execution_20250825", "name": CODE_EXECUTION}
            case "computer_use":
                # Claude takes the screen's size from the screenshots.
                return {"type": "computer_toolset_20260801"}
            case "mcp":
                return self._server(tool)
        raise no_such_tool(tool)

    def _function(self, tool: Tool) -> dict[str, Any]:
        schema = tool.get("parameters") or _NO_INPUT
        if not tool.get("strict"):
            return _custom_tool(tool, object_schema(schema))
        strict = to_grammar_schema(object_schema(schema))
        if strict is None or not self.allowance.try_add(strict):
            self.degraded.append("tools")
            return _custom_tool(tool, object_schema(schema))
        return {**_custom_tool(tool, strict), "strict": True}

    def _web_search(self, tool: Tool) -> dict[str, Any]:
        # The basic version: later ones filter with code, and not every model has them.
        entry: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
        search = WebSearchOptions.of(tool)
        if search.allowed:
            entry["allowed_domains"] = list(search.allowed)
        if search.blocked:
            entry["blocked_domains"] = list(search.blocked)
        if search.location is not None:
            entry["user_location"] = {"type": "approximate", **search.location}
        if search.size not in (None, "medium"):
            self.degraded.append("tools")
        return entry

    def _server(self, tool: Tool) -> dict[str, Any]:
        server = RemoteServer.of(tool)
        server.refuse_asking()
        server.refuse_read_only(tool)
        if server.headers or not server.url:
            raise not_supported(tool, "supports only 'server_url' and 'authorization'")
        named = {"type": "url", "url": server.url, "name": server.label}
        if server.authorization:
            named["authorization_token"] = server.authorization
        self.servers.append(named)
        toolset: dict[str, Any] = {
            "type": "mcp_toolset",
            "mcp_server_name": server.label,
        }
        if server.allowed is not None:
            toolset["default_config"] = {"enabled": False}
            toolset["configs"] = {each: {"enabled": True} for each in server.allowed}
        return toolset


def renamed_tools(tools: Iterable[Tool]) -> dict[str, str]:
    """Map names sent to Anthropic to the declared ones, which it does not allow."""
    named = [str(tool["name"]) for tool in tools if _is_renamable(tool)]
    return {wire: name for name in named if (wire := wire_name(name)) != name}


def _is_renamable(tool: Tool) -> bool:
    kind = tool.get("type")
    return kind == "function" or (kind == "custom" and "input_schema" not in tool)


def convert_choice(
    choice: str | Mapping[str, Any] | None, tools: Sequence[Tool]
) -> tuple[dict[str, Any] | None, Sequence[Tool]]:
    """The `tool_choice` in Anthropic's format, and the tools that it allows.

    Raises BadRequest for a choice that Anthropic does not have.
    """
    if choice is None:
        return None, tools
    if isinstance(choice, str):
        return {"type": _CHOICES.get(choice, choice)}, tools
    kind = str(choice.get("type"))
    if kind == "allowed_tools":
        allowed = [_key(tool) for tool in choice["tools"]]
        remaining = [tool for tool in tools if _key(tool) in allowed]
        return convert_choice(choice.get("mode", "auto"), remaining)[0], remaining
    if kind in ("function", "custom"):
        return {"type": "tool", "name": wire_name(choice["name"])}, tools
    if name := _HOSTED_NAMES.get(kind_of(choice) or ""):
        return {"type": "tool", "name": name}, tools
    raise BadRequest(
        f"With this provider 'tool_choice' cannot name a tool of the type {kind!r}.",
        param="tool_choice",
    )


def _custom_tool(tool: Tool, schema: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": wire_name(tool["name"])}
    if description := tool.get("description"):
        entry["description"] = description
    return {**entry, "input_schema": schema}


def _key(tool: Tool) -> Any:
    return tool.get("name") or tool.get("server_label") or tool.get("type")
