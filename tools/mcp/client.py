"""Sessions with MCP servers, one for each server and event loop, and calls of tools.

Where each user signs in, each user has a session. After staff edit a server, turns that
began before have a session of their own.

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

from tools.mcp.errors import SignInNeeded
from tools.mcp.server_spec import Pin, ServerSpec, SignIns
from tools.mcp.session import Session
from tools.mcp.tool_definition import ToolDefinition, build_tool_name
from tools.runtime_tool import Context, RuntimeTool

#: By the server's name, and the user whose tokens it has.
Sessions = dict[tuple[str, int | None], list[Session]]
_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, Sessions] = WeakKeyDictionary()
MAX_VERSIONS = 4  # of one server for which unused sessions are remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCall:
    """A call of a server's tool; refused unless the tool still has the same digest."""

    server: ServerSpec
    tool: str  # the server's name for the tool
    digest: str = ""  # of the definition that staff approved; "" for any
    pin: Pin | None = None  # detects changes that other processes have seen
    sign_ins: SignIns | None = None  # if each user signs in at the server

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        if self.pin:
            await self.pin.check(self.digest)
        if self.sign_ins is None:
            return await self._send(self.server, context, arguments)
        server = await self.sign_ins.use(self.server, context.sign_ins_of)
        try:
            return await self._send(server, context, arguments)
        except SignInNeeded:
            await self.sign_ins.end(server)
            raise

    async def _send(
        self, server: ServerSpec, context: Context, arguments: dict[str, Any]
    ) -> Any:
        session = get_session(server)
        return await session.call(self.tool, arguments, context, self.digest)


def build_tool(
    server: ServerSpec,
    definition: ToolDefinition,
    name: str = "",
    pin: Pin | None = None,
    sign_ins: SignIns | None = None,
) -> RuntimeTool:
    """The tool as a turn uses it, pinned to this definition. Sends no request."""
    return RuntimeTool(
        name=name or build_tool_name(server.name, definition.name),
        description=definition.description,
        parameters=definition.parameters,
        call=McpCall(
            server=server,
            tool=definition.name,
            digest=definition.digest,
            pin=pin,
            sign_ins=sign_ins,
        ),
        replay=definition.replay,
        label=definition.title,
        source=f"MCP server {server.title}",
    )


def get_session(server: ServerSpec) -> Session:
    """The running loop's session. Sessions for a server of the same name with other
    values, which turns that began before an edit may use, end after their calls."""
    sessions = _sessions.setdefault(asyncio.get_running_loop(), {})
    versions = sessions.setdefault((server.name, server.account), [])
    for session in versions:
        if session.server == server:
            session.server = server  # its label may be newer
            return session
    for session in versions:
        session.retire()
    if server.account is not None:
        _drop_unused(sessions)
    session = Session(server)
    sessions[server.name, server.account] = [*_drop_old(versions), session]
    return session


def _drop_old(versions: list[Session]) -> list[Session]:
    """Those in use and the newest others: a turn that comes back to one opens it again,
    and need not replace the one for the current values."""
    old, newest = versions[: 1 - MAX_VERSIONS], versions[1 - MAX_VERSIONS :]
    return [*(each for each in old if each.is_in_use), *newest]


def _drop_unused(sessions: Sessions) -> None:
    """Forget the users' sessions that are closed: there may be one for each user."""
    for (name, account), versions in list(sessions.items()):
        if account is not None and not any(each.is_in_use for each in versions):
            del sessions[name, account]


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
    everything = [each for versions in sessions.values() for each in versions]
    await asyncio.gather(*(session.close() for session in everything))
