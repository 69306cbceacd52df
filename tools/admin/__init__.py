from __future__ import annotations

from tools.admin.tool import ToolAdmin
from tools.mcp.admin import McpServerAdmin

__all__ = ["McpServerAdmin", "ToolAdmin"]
