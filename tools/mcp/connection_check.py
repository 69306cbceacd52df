"""Connection test of an MCP server for staff: connect, list the tools, close."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync

from tools.errors import ToolError
from tools.mcp.client import temporary_session
from tools.mcp.row_access import describe_failure
from tools.mcp.server_spec import ServerSpec
from tools.mcp.tool_definition import ToolDefinition

if TYPE_CHECKING:
    from tools.models.mcp_server import McpServer

_GONE = "Its program is not in the settings any more."

ServerListing = tuple[tuple[ToolDefinition, ...], dict[str, str]]


def check_connection(row: McpServer) -> str:
    """Stores the listing or the error in the row. Returns the error, "" for none."""
    try:
        found, about = list_server(row.spec)
    except LookupError:
        row.record_error(_GONE)
    except ToolError as exc:
        row.record_error(describe_failure(exc))
    else:
        row.record_listing(found, about)
    return row.error


def list_server(server: ServerSpec) -> ServerListing:
    """The server's tools, and its name and version. Raises ToolError."""
    return async_to_sync(_list_server)(replace(server, notice=None))


async def _list_server(server: ServerSpec) -> ServerListing:
    async with temporary_session(server) as session:
        return await session.tools(), await session.about()
