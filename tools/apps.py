"""App configuration: creates rows for the tools in code after `migrate`."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed
from django.core import checks
from django.db.models.signals import post_migrate


class ToolsConfig(AppConfig):
    name = "tools"
    verbose_name = "Tools"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tools.checks import check_tools

        checks.register(check_tools)
        post_migrate.connect(sync_tools, sender=self)


def sync_tools(*, using: str, apps: Any = None, **kwargs: Any) -> None:
    """Create missing rows after `migrate` and `flush`: for each tool in code, each MCP
    server in the settings and each kind of tool that requests may declare."""
    from tools.models import Tool
    from tools.models.declared_tool import DeclaredTool
    from tools.models.mcp_server import McpServer

    migrated = apps or installed  # `flush` passes no apps
    try:
        for name in ("Tool", "McpServer", "DeclaredTool"):
            migrated.get_model("tools", name)
    except LookupError:  # a reverse migration has removed the table
        return
    Tool.objects.using(using).sync()
    McpServer.objects.using(using).sync()
    DeclaredTool.objects.using(using).sync()
