"""Connection test of an MCP server for staff: connect, list the tools, close."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync

from llm.concurrency.thread_lending import lend_thread
from tools.errors import ToolError
from tools.mcp.client import temporary_session
from tools.mcp.row_access import record_failure
from tools.mcp.server_spec import ServerSpec
from tools.mcp.tool_definition import ToolDefinition

if TYPE_CHECKING:
    from tools.models.mcp_server import McpServer

_GONE = "The program is no longer in the settings."

#: The tools, the server's name and version, and how long it took to list the tools.
ServerListing = tuple[tuple[ToolDefinition, ...], dict[str, str], float]


def check_connection(row: McpServer, user: Any = None) -> str:
    """Store the listing or the error in the row. Return the error, "" for none.

    Where each user signs in, it uses the sign-in of `user`.
    """
    try:
        found, about, seconds = list_server(row.spec_for(user))
    except LookupError:
        row.record_error(_GONE)
    except ToolError as exc:
        record_failure(row, exc)
    else:
        row.record_listing(found, about, seconds)
    return row.error


@lend_thread()
def list_server(server: ServerSpec) -> ServerListing:
    """Raises ToolError."""
    return async_to_sync(_list_server)(replace(server, notice=None))


async def _list_server(server: ServerSpec) -> ServerListing:
    async with temporary_session(server) as session:
        about, began = await session.about(), time.monotonic()
        found = await session.tools()
        return found, about, time.monotonic() - began
