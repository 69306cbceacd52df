"""Model of an MCP server's tool as staff approved it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from tools.mcp.client import build_tool
from tools.mcp.errors import SignInFailed, ToolNotApproved
from tools.mcp.row_access import RowPin, RowSignIns
from tools.mcp.tool_definition import ToolDefinition
from tools.models.mcp_user_sign_in import McpUserSignIn
from tools.models.tool import Tool
from tools.runtime_tool import OwnSignIn, Risk, RuntimeTool


class McpTool(models.Model):
    """A server's tool as staff approved it."""

    class Difference(models.TextChoices):
        CHANGED = "changed", _("changed, held back")
        GONE = "gone", _("no longer listed")

    tool = models.OneToOneField(Tool, models.CASCADE, related_name="mcp")
    server = models.ForeignKey("tools.McpServer", models.CASCADE, related_name="tools")
    remote_name = models.CharField(max_length=500)
    definition = models.JSONField()
    approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    approved_at = models.DateTimeField()
    difference = models.CharField(
        max_length=10,
        blank=True,
        choices=Difference.choices,
        help_text=_(
            "Differences between the approved definition and the last listed one."
        ),
    )

    class Meta:
        default_permissions = ()  # the permissions of its tool and its server apply
        ordering = ["remote_name"]
        verbose_name = _("MCP tool")
        constraints = [
            models.UniqueConstraint(
                fields=["server", "remote_name"], name="tools_mcptool_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.server}: {self.remote_name}"

    @property
    def pinned(self) -> ToolDefinition:
        return ToolDefinition.from_dict(self.definition)

    def check_approval(self, digest: str, signed_in_at: datetime | None) -> None:
        """Raises ToolNotApproved unless staff approved the tool with this digest, and
        SignInFailed if the sign-in of that time has ended."""
        if not self.server.enabled:
            raise ToolNotApproved("the staff no longer allow this tool.")
        if signed_in_at and self.server.signed_in_at != signed_in_at:
            raise SignInFailed("staff have ended the sign-in at the tool's server.")
        if self.difference == self.Difference.GONE:
            raise ToolNotApproved("the tool's server no longer offers this tool.")
        if self.difference or self.pinned.digest != digest:
            raise ToolNotApproved

    def build_base_tool(self) -> RuntimeTool | None:
        """The approved tool; None if Parley must not call it. Sends no request."""
        server = self.server
        if not server.enabled or server.hosted:
            return None
        try:
            spec = server.spec
        except LookupError:  # its program is gone from the settings
            return None
        if not spec.allows(self.remote_name):
            return None
        pinned = self.pinned
        own, sign_ins = None, None
        if server.is_for_users:
            own = OwnSignIn(server_id=server.pk, title=spec.title)
            sign_ins = RowSignIns(McpUserSignIn, server.pk)
        pin = RowPin(McpTool, self.pk, None if own else server.signed_in_at)
        tool = build_tool(spec, pinned, self.tool.name, pin, sign_ins)
        approval = self.tool.usual_approval(reads_only=pinned.reads_only)
        return replace(tool, approval=approval, risk=self._risk, own_sign_in=own)

    @property
    def _risk(self) -> Risk:
        return "reads" if self.pinned.reads_only else "both"

    @property
    def runs_at_providers(self) -> bool:
        """True if a provider may call it: unchanged, and needs no approval, for which
        providers do not ask, not even after foreign content."""
        asks = self.tool.approval or self.tool.usual_approval(
            reads_only=self.pinned.reads_only
        )
        if self.difference or (asks and asks != Tool.Approve.NEVER):
            return False
        reads = (self.tool.risk or self._risk) in ("none", "reads")
        return reads or self.tool.runs_after_untrusted
