"""Connection to an MCP server with the SDK's client. Loads the SDK: import it late.

The SDK negotiates the protocol revision: it requests the newest that it knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost

from llm.wire.sanitize import sanitize_json
from tools.mcp.http_transport import MAX_MESSAGE, Health, http_client
from tools.mcp.oauth.auth import build_auth
from tools.mcp.server_spec import ServerSpec
from tools.mcp.stdio_transport import connect_stdio
from tools.mcp.tool_definition import ToolDefinition
from tools.runtime_tool import FormAnswer

MAX_PAGES = 100  # of a listing
#: The first revision in which servers report changes only to subscribers.
FIRST_WITH_SUBSCRIPTIONS = "2026-07-28"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a lost stream is reopened

#: Receives the parameters of an `elicitation/create`, unchanged.
ElicitCallback = Callable[[Mapping[str, Any]], Awaitable[FormAnswer]]

# The SDK's log messages quote data of servers and users.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


@asynccontextmanager
async def connect(
    server: ServerSpec,
    health: Health,
    ask: ElicitCallback,
    on_tools_changed: Callable[[], None],
) -> AsyncGenerator[Client, None]:
    """A client after the handshake. The task that enters the block must leave it.

    `ask` answers the server's questions; `on_tools_changed` is called when the server
    says that its tools changed. Raises the SDK's exceptions, often in groups.
    """

    async def on_elicit(
        context: object, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        answer = await ask(_to_wire(params))
        content = dict(answer.content) if answer.action == "accept" else None
        return types.ElicitResult(action=answer.action, content=content)

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_tools_changed()

    client = Client(
        _transport(server, health),
        client_info=types.Implementation(name="parley", version=_version()),
        elicitation_callback=on_elicit,
        message_handler=on_message,
        cache=None,  # `Session` caches the listing
    )
    async with client:
        if health.startup_output is not None:
            health.startup_output.end()
        yield client


async def watch_tools(client: Client, on_tools_changed: Callable[[], None]) -> None:
    """Subscribe to tool changes, on servers that report them only to subscribers.

    Runs until it is cancelled. After a lost connection it reports a change, because the
    tools may have changed meanwhile.
    """
    tools = client.server_capabilities.tools
    if client.protocol_version < FIRST_WITH_SUBSCRIPTIONS:
        return  # it notifies on the session's own stream
    pause = FIRST_PAUSE
    while tools and tools.list_changed:
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                pause = FIRST_PAUSE
                async for _ in subscription:
                    on_tools_changed()
        except (MCPError, SubscriptionLost, TimeoutError):
            pause = min(pause * 2, LONGEST_PAUSE)
        on_tools_changed()
        await asyncio.sleep(pause)


async def list_tools(client: Client, server: ServerSpec) -> tuple[ToolDefinition, ...]:
    """List the server's tools, all pages, without those that staff do not allow."""
    found: dict[str, ToolDefinition] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            if server.allows(tool.name):
                found.setdefault(tool.name, _definition(tool))
        if (cursor := page.next_cursor) is None:
            break
    return tuple(found.values())


def _definition(tool: types.Tool) -> ToolDefinition:
    annotations = tool.annotations
    fields = {
        "name": tool.name,
        "title": tool.title or (annotations.title if annotations else None) or "",
        "description": tool.description or "",
        "parameters": tool.input_schema,
        "annotations": _to_wire(annotations) if annotations else {},
    }
    return ToolDefinition.from_dict(sanitize_json(fields))


def _to_wire(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    return dumped


def _transport(server: ServerSpec, health: Health) -> Any:
    if server.program:
        return connect_stdio(server.program, health)
    return _connect_http(server, health)


@asynccontextmanager
async def _connect_http(server: ServerSpec, health: Health) -> AsyncIterator[Any]:
    async with (
        http_client(server, health, build_auth(server, health)) as http,
        streamable_http_client(
            server.url, http_client=http, max_sse_event_size=MAX_MESSAGE
        ) as streams,
    ):
        yield streams


def _version() -> str:
    try:
        return version("parley")
    except PackageNotFoundError:  # not installed as a package
        return "0"
