"""Registration of the admin of tools and MCP servers."""

from __future__ import annotations

from tools.admin.declared_tool import DeclaredToolAdmin
from tools.admin.tool import ToolAdmin
from tools.mcp.admin import McpServerAdmin

__all__ = ["DeclaredToolAdmin", "McpServerAdmin", "ToolAdmin"]
