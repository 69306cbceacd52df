"""A look at what a server offers, for staff: connect, list, and close again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync

from tools.errors import FetchError, ToolError
from tools.mcp.client import short_session
from tools.mcp.definitions import Definition
from tools.mcp.errors import McpError
from tools.mcp.spec import Server

if TYPE_CHECKING:
    from tools.mcp.rows import McpServer

_GONE = "Its program is not in the settings any more."

Seen = tuple[tuple[Definition, ...], dict[str, str]]


def look(row: McpServer) -> str:
    """Records what is found or what went wrong; returns the latter, "" for none."""
    try:
        found, about = async_to_sync(_look)(row.spec)
    except LookupError:
        row.record_error(_GONE)
    except ToolError as exc:
        row.record_error(f"{_sentence(str(exc))} {_advice(exc)}".strip())
    else:
        row.record_listing(found, about)
    return row.error


async def _look(server: Server) -> Seen:
    async with short_session(server) as session:
        return await session.tools(), await session.about()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _advice(exc: ToolError) -> str:
    return exc.advice if isinstance(exc, FetchError | McpError) else ""
