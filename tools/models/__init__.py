"""Every model of this app."""

from __future__ import annotations

from tools.models.declared_tool import DeclaredTool
from tools.models.mcp_server import McpServer, McpTool
from tools.models.mcp_sign_in import McpSignIn
from tools.models.tool import HttpTool, PermittedTools, Tool
from tools.models.tool_version import ToolVersion

__all__ = [
    "DeclaredTool",
    "HttpTool",
    "McpServer",
    "McpSignIn",
    "McpTool",
    "PermittedTools",
    "Tool",
    "ToolVersion",
]
