"""Connection test of an MCP server for staff: connect, list the tools, close."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync

from tools.errors import ToolError
from tools.mcp.client import short_session
from tools.mcp.definitions import Definition
from tools.mcp.kept import told
from tools.mcp.spec import Server

if TYPE_CHECKING:
    from tools.mcp.rows import McpServer

_GONE = "Its program is not in the settings any more."

Seen = tuple[tuple[Definition, ...], dict[str, str]]


def look(row: McpServer) -> str:
    """Stores the listing or the error in the row. Returns the error, "" for none."""
    try:
        found, about = seen(row.spec)
    except LookupError:
        row.record_error(_GONE)
    except ToolError as exc:
        row.record_error(told(exc))
    else:
        row.record_listing(found, about)
    return row.error


def seen(server: Server) -> Seen:
    """The server's tools, and its name and version. Raises ToolError."""
    return async_to_sync(_seen)(replace(server, notice=None))


async def _seen(server: Server) -> Seen:
    async with short_session(server) as session:
        return await session.tools(), await session.about()
