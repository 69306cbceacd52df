"""The tools of one run: found by name, built from code, listed by MCP servers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from llm.concurrency.calling_thread import run_with_orm
from tools.agent.sources import HttpTool, McpServer, ToolSource
from tools.errors import InvalidTool, ToolError
from tools.mcp.client import build_tool, temporary_session
from tools.mcp.session import Session
from tools.mcp.tool_definition import ToolDefinition
from tools.models import Tool
from tools.models.tool import PermittedTools
from tools.registry import python_tools, tool_of
from tools.runtime_tool import Context, RuntimeTool


@dataclass(slots=True)
class Toolbox:
    """The tools that a run executes, and the definitions that its requests have."""

    tools: dict[str, RuntimeTool] = field(default_factory=dict)
    #: Functions that the caller runs, and tools that the provider runs.
    other: list[dict[str, Any]] = field(default_factory=list)

    @property
    def definitions(self) -> list[dict[str, Any]]:
        return [*(tool.definition for tool in self.tools.values()), *self.other]

    @property
    def client_tools(self) -> frozenset[str]:
        functions = [each for each in self.other if each.get("type") == "function"]
        return frozenset(each["name"] for each in functions)

    def add(self, tool: RuntimeTool) -> None:
        """Raises InvalidTool for a second tool of this name."""
        if tool.name in self.tools or tool.name in self.client_tools:
            raise InvalidTool(f"two tools are named {tool.name!r}; rename one of them.")
        self.tools[tool.name] = tool

    def add_definition(self, definition: Mapping[str, Any]) -> None:
        """Raises InvalidTool."""
        kind = definition.get("type")
        if not isinstance(kind, str):
            raise InvalidTool(
                "the definition of a tool has no 'type', such as 'function'."
            )
        if kind == "function":
            name = definition.get("name")
            if not isinstance(name, str):
                raise InvalidTool(
                    "the definition of a function has no 'name'; Chat Completions"
                    " nests it in 'function', the Responses API does not."
                )
            if name in self.tools or name in self.client_tools:
                raise InvalidTool(f"two tools are named {name!r}; rename one of them.")
        self.other.append(dict(definition))


async def load_tools(
    sources: Iterable[ToolSource], user: Any, stack: AsyncExitStack
) -> Toolbox:
    """The tools that `sources` name. `stack` closes the sessions of MCP servers.

    Raises InvalidTool, and ToolError if an MCP server cannot list its tools.
    """
    if isinstance(sources, str | Mapping):
        raise InvalidTool("tools is a list; write tools=[…].")
    sources = list(sources)
    names = [source for source in sources if isinstance(source, str)]
    found = await _find(names, user) if names else PermittedTools()
    servers = [source for source in sources if isinstance(source, McpServer)]
    listed = await _list_servers(servers, stack)
    box = Toolbox()
    for source in sources:
        match source:
            case str() if source in found.hosted:
                box.add_definition(found.hosted[source])
            case str():
                box.add(found.tools[source])
            case RuntimeTool():
                box.add(source)
            case Tool():
                await _add_row(box, source)
            case HttpTool():
                box.add(source.build_tool())
            case McpServer():
                for tool in listed[source.label]:
                    box.add(tool)
            case Mapping():
                box.add_definition(source)
            case _:
                box.add(tool_of(source))
    return box


async def _find(names: Collection[str], user: Any) -> PermittedTools:
    """The tools of these names: for a user, what the rows permit; else tools in code,
    as they are, before rows."""
    code = {} if user is not None else python_tools()
    tools = {name: code[name] for name in names if name in code}
    found = PermittedTools(tools)
    if missing := [name for name in names if name not in tools]:
        rows = await run_with_orm(Tool.objects.load_for, user)
        for name in missing:
            if name in rows.hosted:
                found.hosted[name] = rows.hosted[name]
            elif name in rows.tools:
                found.tools[name] = rows.tools[name]
            else:
                raise InvalidTool(_describe_missing(name, {*code, *rows.tools}))
    return found


def _describe_missing(name: str, known: Collection[str]) -> str:
    offer = ", ".join(sorted(known)) or "none"
    return f"no tool named {name!r} may be used here; there are: {offer}."


async def _add_row(box: Toolbox, row: Tool) -> None:
    built = await run_with_orm(PermittedTools.from_rows, [row])
    if row.name in built.hosted:
        box.add_definition(built.hosted[row.name])
    elif row.name in built.tools:
        box.add(built.tools[row.name])
    else:
        raise InvalidTool(f"the tool {row.name!r} cannot be used now.")


# MCP servers


@dataclass(frozen=True, slots=True)
class _SessionCall:
    """A call of a server's tool in the session of this run."""

    session: Session
    tool: str  # the server's name for the tool

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        return await self.session.call(self.tool, arguments, context)


async def _list_tools(server: tuple[str, Session]) -> Sequence[ToolDefinition]:
    label, session = server
    try:
        return await session.tools()
    except ToolError as exc:
        problem = f"The MCP server {label!r} cannot list its tools: {exc}"
        raise ToolError(problem) from exc


async def _list_servers(
    servers: Collection[McpServer], stack: AsyncExitStack
) -> dict[str, list[RuntimeTool]]:
    """The tools of each server, by its label. A run has sessions of its own, because
    its headers may be those of one person."""
    if len({server.label for server in servers}) < len(servers):
        raise InvalidTool("two MCP servers have the same label; rename one of them.")
    sessions = {
        server.label: await stack.enter_async_context(
            temporary_session(server.build_spec())
        )
        for server in servers
    }
    listings = await asyncio.gather(*map(_list_tools, sessions.items()))
    return {
        label: [
            replace(
                build_tool(session.server, definition),
                call=_SessionCall(session, definition.name),
            )
            for definition in listing
        ]
        for (label, session), listing in zip(sessions.items(), listings, strict=True)
    }
