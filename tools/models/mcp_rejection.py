"""Row of a tool's definition that staff have reviewed and not approved."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class McpRejection(models.Model):
    """The review queue leaves this definition out; the server's next one is reviewed
    again. A tool that was approved before stays held back."""

    server = models.ForeignKey(
        "tools.McpServer", models.CASCADE, related_name="rejections"
    )
    remote_name = models.CharField(max_length=500)
    digest = models.CharField(max_length=64)
    rejected_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    rejected_at = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()  # those of its server apply
        verbose_name = _("rejected definition")
        constraints = [
            models.UniqueConstraint(
                fields=["server", "remote_name"], name="tools_mcprejection_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.server}: {self.remote_name}"
