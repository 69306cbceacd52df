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
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from llm.wire.mending import mended_json
from tools.mcp.auth import auth_of
from tools.mcp.definitions import Definition
from tools.mcp.network import MAX_MESSAGE, Health, http_client
from tools.mcp.pipes import over_pipes
from tools.mcp.spec import Server
from tools.registry import Answer

MAX_PAGES = 100  # of a listing
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a lost stream is reopened

#: Receives the parameters of an `elicitation/create`, unchanged.
Ask = Callable[[Mapping[str, Any]], Awaitable[Answer]]

# The SDK's log messages quote data of servers and users.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


@asynccontextmanager
async def connection(
    server: Server, health: Health, ask: Ask, changed: Callable[[], None]
) -> AsyncGenerator[Client, None]:
    """A client after the handshake. The task that enters the block must leave it.

    `ask` answers the server's questions; `on_tools_changed` is called when the server
    says that its tools changed. Raises the SDK's exceptions, often in groups.
    """

    async def asked(
        context: object, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        answer = await ask(_wire(params))
        content = dict(answer.content) if answer.action == "accept" else None
        return types.ElicitResult(action=answer.action, content=content)

    async def heard(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed()

    client = Client(
        _transport(server, health),
        client_info=types.Implementation(name="parley", version=_version()),
        elicitation_callback=asked,
        message_handler=heard,
        cache=None,  # `Session` caches the listing
    )
    async with client:
        yield client


async def watch(client: Client, changed: Callable[[], None]) -> None:
    """Subscribes to tool changes, on servers that report them only to subscribers.

    Runs until it is cancelled. After a lost connection it reports a change, because the
    tools may have changed meanwhile.
    """
    tools = client.server_capabilities.tools
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return  # it notifies on the session's own stream
    pause = FIRST_PAUSE
    while tools and tools.list_changed:
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                pause = FIRST_PAUSE
                async for _ in subscription:
                    changed()
        except (MCPError, SubscriptionLost, TimeoutError):
            pause = min(pause * 2, LONGEST_PAUSE)
        changed()
        await asyncio.sleep(pause)


async def listed(client: Client, server: Server) -> tuple[Definition, ...]:
    """Lists the server's tools, all pages, without those that staff do not allow."""
    found: dict[str, Definition] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            if server.allows(tool.name):
                found.setdefault(tool.name, _definition(tool))
        if (cursor := page.next_cursor) is None:
            break
    return tuple(found.values())


def _definition(tool: types.Tool) -> Definition:
    annotations = tool.annotations
    told = {
        "name": tool.name,
        "title": tool.title or (annotations.title if annotations else None) or "",
        "description": tool.description or "",
        "parameters": tool.input_schema,
        "annotations": _wire(annotations) if annotations else {},
    }
    return Definition.read(mended_json(told))


def _wire(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    return dumped


def _transport(server: Server, health: Health) -> Any:
    if server.program:
        return over_pipes(server.program, health)
    return _over_http(server, health)


@asynccontextmanager
async def _over_http(server: Server, health: Health) -> AsyncIterator[Any]:
    async with (
        http_client(server, health, auth_of(server)) as http,
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
