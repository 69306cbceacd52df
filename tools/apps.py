from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed
from django.apps.registry import Apps
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
    """A row for each tool that code offers, for each MCP server of the settings and
    for each kind of tool that requests declare, after `migrate` and after `flush`."""
    from tools.declared_tools import DeclaredTool
    from tools.mcp.rows import McpServer
    from tools.models import Tool

    migrated: Apps = apps or installed  # `flush` tells none
    try:
        for name in ("Tool", "McpServer", "DeclaredTool"):
            migrated.get_model("tools", name)
    except LookupError:  # migrated back to where there is no table
        return
    Tool.objects.using(using).sync()
    McpServer.objects.using(using).sync()
    DeclaredTool.objects.using(using).sync()
