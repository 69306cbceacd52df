"""Sessions with MCP servers, one for each server and event loop, and calls of tools.

A session is opened when it is first needed and belongs to the event loop that it was
opened in. `close_all` closes those of the running loop; call it when draining the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from tools.mcp.server_spec import Pin, ServerSpec
from tools.mcp.session import Session
from tools.mcp.tool_definition import ToolDefinition, build_tool_name
from tools.runtime_tool import Context, RuntimeTool

_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Session]] = (
    WeakKeyDictionary()
)
_closing: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCall:
    """A call of a server's tool; refused unless the tool still has the same digest."""

    server: ServerSpec
    tool: str  # the server's name for the tool
    digest: str = ""  # of the definition that staff approved; "" for any
    pin: Pin | None = None  # detects changes that other processes have seen

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        if self.pin:
            await self.pin.check(self.digest)
        session = get_session(self.server)
        return await session.call(self.tool, arguments, context, self.digest)


def build_tool(
    server: ServerSpec,
    definition: ToolDefinition,
    name: str = "",
    pin: Pin | None = None,
) -> RuntimeTool:
    """The tool as a turn uses it, pinned to this definition. Sends no request."""
    return RuntimeTool(
        name=name or build_tool_name(server.name, definition.name),
        description=definition.description,
        parameters=definition.parameters,
        call=McpCall(
            server=server, tool=definition.name, digest=definition.digest, pin=pin
        ),
        replay=definition.replay,
        label=definition.title,
        source=f"MCP server {server.title}",
    )


def get_session(server: ServerSpec) -> Session:
    """The running loop's session; replaces one for a server of the same name that has
    changed."""
    sessions = _sessions.setdefault(asyncio.get_running_loop(), {})
    session = sessions.get(server.name)
    if session is None or session.server != server:
        if session:
            _close_later(session)
        session = sessions[server.name] = Session(server)
    return session


@asynccontextmanager
async def temporary_session(server: ServerSpec) -> AsyncGenerator[Session, None]:
    """A separate session that closes at the end of the block, to test a connection."""
    session = Session(server)
    try:
        yield session
    finally:
        await session.close()


async def close_all() -> None:
    """Close all sessions of the running loop, which ends the calls in them."""
    sessions = _sessions.pop(asyncio.get_running_loop(), {})
    await asyncio.gather(*(session.close() for session in sessions.values()))
    loop = asyncio.get_running_loop()
    if left := [task for task in _closing if task.get_loop() is loop]:
        await asyncio.wait(left)


def _close_later(session: Session) -> None:
    task = asyncio.create_task(session.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
