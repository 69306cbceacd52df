"""Admin page of an MCP server's health: last success and error, latency, events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from llm.telemetry.percentiles import nearest_rank
from tools.models.mcp_event import MAX_KEPT, McpEvent
from tools.models.mcp_server import McpServer

MAX_MARKS = 60  # of the chart
MARK_WIDTH, CHART_HEIGHT = 10, 60  # units of the drawing
_LEAST = 0.05  # of the chart's height, so that a short time is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A listing, as high as the time it took, or a failure."""

    event: McpEvent
    left: int
    top: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    success: McpEvent | None  # the last one
    failure: McpEvent | None
    p50: float | None  # seconds to list the tools
    p95: float | None
    approved: int
    held: int
    listed: int
    events: Sequence[McpEvent]  # newest first
    marks: Sequence[Mark]
    longest: float  # seconds

    @property
    def latency(self) -> str:
        p50, p95 = (self.p50 or 0.0) * 1000, (self.p95 or 0.0) * 1000
        return f"{p50:.0f} / {p95:.0f} ms"

    @property
    def chart_width(self) -> int:
        return MARK_WIDTH * len(self.marks)


def health_of(row: McpServer) -> Health:
    """Two queries beside the server's tools; as many rows as are kept."""
    events = list(row.events.order_by("-pk")[: 2 * MAX_KEPT])
    good = [each for each in events if not each.is_failure]
    failed = [each for each in events if each.is_failure]
    seconds = sorted(each.seconds for each in good if each.seconds is not None)
    tools = list(row.tools.all())
    return Health(
        success=good[0] if good else None,
        failure=failed[0] if failed else None,
        p50=nearest_rank(seconds, 50),
        p95=nearest_rank(seconds, 95),
        approved=len(tools),
        held=sum(1 for each in tools if each.difference),
        listed=len(row.listing),
        events=events,
        marks=_marks(events),
        longest=seconds[-1] if seconds else 0.0,
    )


def _marks(events: Sequence[McpEvent]) -> list[Mark]:
    """Oldest first."""
    shown = [each for each in events if each.is_failure or each.seconds is not None]
    shown = shown[:MAX_MARKS][::-1]
    longest = max((each.seconds or 0.0 for each in shown), default=0.0) or 1.0
    marks = []
    for number, event in enumerate(shown):
        share = 1.0 if event.is_failure else max(_LEAST, (event.seconds or 0) / longest)
        height = round(CHART_HEIGHT * share, 1)
        top, left = CHART_HEIGHT - height, number * MARK_WIDTH
        marks.append(Mark(event=event, left=left, top=top, height=height))
    return marks


class McpHealthAdmin(admin.ModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.health_view)
        own = [path("<int:pk>/health/", view, name="tools_mcpserver_health")]
        return [*own, *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[McpServer]:
        rows: QuerySet[McpServer] = super().get_queryset(request)
        good = McpEvent.objects.filter(server=OuterRef("pk"), is_failure=False)
        timed = good.filter(seconds__isnull=False).order_by("-pk")
        return rows.annotate(
            last_success=Subquery(good.order_by("-pk").values("at")[:1]),
            last_seconds=Subquery(timed.values("seconds")[:1]),
        )

    def health_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self.get_queryset(request).filter(pk=pk).first()
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Health of %(server)s") % {"server": row},
            "row": row,
            "health": health_of(row),
            "mark_width": MARK_WIDTH - 2,
            "chart_height": CHART_HEIGHT,
        }
        return TemplateResponse(request, "admin/tools/mcpserver/health.html", context)

    @admin.display(description=_("last success"), ordering="last_success")
    def last_success_shown(self, row: Any) -> Any:
        return row.last_success

    @admin.display(description=_("latency"), ordering="last_seconds")
    def latency(self, row: Any) -> str:
        return "–" if row.last_seconds is None else f"{row.last_seconds * 1000:.0f} ms"
