"""Rows of what happened between Parley and an MCP server: listings and failures."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.wire.sanitize import sanitize_text

MAX_KEPT = 100  # events of a server that went well, and as many that failed
MAX_TEXT = 500  # characters


class McpEventQuerySet(models.QuerySet["McpEvent"]):
    def record(
        self,
        server: Any,  # a `McpServer`
        kind: str,
        text: str = "",
        *,
        tool: str = "",
        seconds: float | None = None,
    ) -> None:
        """Add an event, and delete the oldest ones of its sort."""
        row = McpEvent(server=server, kind=kind, seconds=seconds)
        row.text = sanitize_text(text)[:MAX_TEXT]
        row.tool = sanitize_text(tool)[:MAX_TEXT]
        row.is_failure = kind not in (McpEvent.Kind.LISTED, McpEvent.Kind.CHANGED)
        row.save(using=self.db, force_insert=True)
        same = self.filter(server=server, is_failure=row.is_failure)
        ids = same.order_by("-pk").values_list("pk", flat=True)
        if surplus := list(ids[MAX_KEPT : MAX_KEPT + 1]):
            same.filter(pk__lte=surplus[0]).delete()


class McpEvent(models.Model):
    """Holds no arguments, no results and no words of the server about a call."""

    class Kind(models.TextChoices):
        LISTED = "listed", _("listed its tools")
        CHANGED = "changed", _("lists other tools")
        NOT_CONNECTED = "not_connected", _("no connection")
        CALL_FAILED = "call_failed", _("a call failed")

    server = models.ForeignKey("tools.McpServer", models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    is_failure = models.BooleanField()
    tool = models.CharField(max_length=MAX_TEXT, blank=True)
    text = models.CharField(max_length=MAX_TEXT, blank=True)
    seconds = models.FloatField(null=True)

    objects = McpEventQuerySet.as_manager()

    class Meta:
        default_permissions = ()  # those of its server apply
        ordering = ["-pk"]
        verbose_name = _("event of an MCP server")
        indexes = [
            models.Index(
                fields=["server", "is_failure", "-id"], name="tools_mcpevent_newest"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.at:%Y-%m-%d %H:%M}"
