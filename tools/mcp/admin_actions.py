"""Actions on several MCP servers: list their tools again, enable, disable."""

from __future__ import annotations

from collections import Counter

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from llm.admin import refusal_of, report_rows
from tools.mcp.connection_check import check_connection
from tools.models.mcp_server import McpServer

MAX_REFRESHED = 10  # servers, because a person waits at the page


class McpActionsMixin(admin.ModelAdmin):
    @admin.action(
        description=gettext_lazy("Refresh the lists of tools"), permissions=["change"]
    )
    def refresh(self, request: HttpRequest, rows: QuerySet[McpServer]) -> None:
        """Tools that changed are held back and new ones wait for their review."""
        chosen = list(rows[: MAX_REFRESHED + 1])
        if len(chosen) > MAX_REFRESHED:
            text = _("Choose at most %(count)d servers.") % {"count": MAX_REFRESHED}
            self.message_user(request, text, messages.ERROR)
            return
        left_out: Counter[str] = Counter()
        count = 0
        for row in chosen:
            if not row.enabled:
                left_out[_("switched off")] += 1
            elif error := check_connection(row, request.user):
                left_out[f"{row} ({error.rstrip('.')})"] += 1
            else:
                count += 1
        text = ngettext(
            "%(count)d server listed its tools",
            "%(count)d servers listed their tools",
            count,
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))

    @admin.action(description=gettext_lazy("Enable"), permissions=["change"])
    def enable(self, request: HttpRequest, rows: QuerySet[McpServer]) -> None:
        done, left_out = self._switch(request, rows, on=True)
        text = _("%(count)d switched on") % {"count": done}
        report_rows(self, request, text, left_out, any_done=bool(done))

    @admin.action(description=gettext_lazy("Disable"), permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[McpServer]) -> None:
        done, left_out = self._switch(request, rows, on=False)
        text = _("%(count)d switched off") % {"count": done}
        report_rows(self, request, text, left_out, any_done=bool(done))

    def _switch(
        self, request: HttpRequest, rows: QuerySet[McpServer], *, on: bool
    ) -> tuple[int, Counter[str]]:
        same = _("switched on already") if on else _("switched off already")
        left_out: Counter[str] = Counter()
        count = 0
        for row in rows:
            if row.enabled == on:
                left_out[same] += 1
            elif why := _switch_one(row, on=on):
                left_out[f"{row} ({why})"] += 1
            else:
                self.log_change(request, row, [{"changed": {"fields": ["enabled"]}}])
                count += 1
        return count, left_out


def _switch_one(row: McpServer, *, on: bool) -> str:
    """Switch the server with the hosted tool that stands for it; "" or why not."""
    row.enabled = on
    try:
        with transaction.atomic():
            row.save(update_fields=["enabled"])
            row.sync_hosted_tool()
    except ValidationError as exc:
        return refusal_of(exc)
    return ""
