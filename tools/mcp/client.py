"""MCP servers as turns use them: a session each, opened when it is first needed.

A session belongs to the event loop that it was opened in. `close_all` ends those of the
running loop; whoever drains the loop calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from tools.mcp.definitions import Definition, namespaced
from tools.mcp.session import Session
from tools.mcp.spec import Pin, Server
from tools.registry import Context, Tool

_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Session]] = (
    WeakKeyDictionary()
)
_closing: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCall:
    """One call of a server's tool. It is held back unless its digest is the tool's."""

    server: Server
    tool: str  # the server's own name
    digest: str = ""  # of the definition that staff approved; "" for any
    pin: Pin | None = None  # says whether any process has seen another definition

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        if self.pin:
            await self.pin.check(self.digest)
        session = session_of(self.server)
        return await session.call(self.tool, arguments, context, self.digest)


def tool_of(
    server: Server, definition: Definition, name: str = "", pin: Pin | None = None
) -> Tool:
    """As a turn uses it, pinned to this definition. Nothing is asked of the server."""
    return Tool(
        name=name or namespaced(server.name, definition.name),
        description=definition.description,
        parameters=definition.parameters,
        call=McpCall(
            server=server, tool=definition.name, digest=definition.digest, pin=pin
        ),
        replay=definition.replay,
        label=definition.title,
        source=f"MCP server {server.title}",
    )


def session_of(server: Server) -> Session:
    """The running loop's; one for another server of the same name is closed."""
    sessions = _sessions.setdefault(asyncio.get_running_loop(), {})
    session = sessions.get(server.name)
    if session is None or session.server != server:
        if session:
            _close_later(session)
        session = sessions[server.name] = Session(server)
    return session


@asynccontextmanager
async def short_session(server: Server) -> AsyncGenerator[Session, None]:
    """One that nobody shares and that ends with the block: to test a connection."""
    session = Session(server)
    try:
        yield session
    finally:
        await session.close()


async def close_all() -> None:
    """Ends all sessions of the running loop, and the calls in them."""
    sessions = _sessions.pop(asyncio.get_running_loop(), {})
    await asyncio.gather(*(session.close() for session in sessions.values()))
    loop = asyncio.get_running_loop()
    if left := [task for task in _closing if task.get_loop() is loop]:
        await asyncio.wait(left)


def _close_later(session: Session) -> None:
    task = asyncio.create_task(session.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
