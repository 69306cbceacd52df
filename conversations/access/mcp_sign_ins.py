"""Users' own sign-ins at MCP servers: which servers a user may use, and signing out."""

from __future__ import annotations

from typing import Any

from conversations.audit.record import record_event
from tools.mcp.sign_out import sign_out
from tools.models import McpServer, McpUserSignIn, Tool
from tools.models.mcp_server import McpServerQuerySet


def offered_servers(user: Any) -> McpServerQuerySet:
    """Servers with their own sign-in, of which the user may use a tool."""
    tools = Tool.objects.visible_to(user).filter(enabled=True, mcp__isnull=False)
    return McpServer.objects.filter(
        pk__in=tools.values("mcp__server"),
        enabled=True,
        oauth_flow=McpServer.Flow.USER,
    )


def sign_out_user(row: McpUserSignIn, actor: Any) -> bool:
    """Delete the user's tokens in any case, then revoke them at the authorization
    server. False if there is nothing to revoke. Raises ToolError if that failed."""
    record_event("server.sign_out", target=row.server, actor=actor, subject=row.user)
    return sign_out(row)
