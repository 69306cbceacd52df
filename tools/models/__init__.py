"""Every model of this app."""

from __future__ import annotations

from tools.models.declared_tool import DeclaredTool
from tools.models.http_tool import HttpTool
from tools.models.mcp_event import McpEvent
from tools.models.mcp_pending_sign_in import McpSignIn
from tools.models.mcp_rejection import McpRejection
from tools.models.mcp_server import McpServer
from tools.models.mcp_tool import McpTool
from tools.models.mcp_user_sign_in import McpUserSignIn
from tools.models.tool import PermittedTools, Tool
from tools.models.tool_use import ToolUse
from tools.models.tool_version import ToolVersion

__all__ = [
    "DeclaredTool",
    "HttpTool",
    "McpEvent",
    "McpRejection",
    "McpServer",
    "McpSignIn",
    "McpTool",
    "McpUserSignIn",
    "PermittedTools",
    "Tool",
    "ToolUse",
    "ToolVersion",
]
