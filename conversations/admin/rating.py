"""Admin of ratings, which staff filter and export."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.translation import gettext_lazy as _

from conversations.admin.conversation_content import INSPECT
from conversations.audit.act import READING_REASON
from conversations.audit.record import record_event
from conversations.models import Rating
from conversations.staff.csv_cells import quote_formula
from llm.admin import LargeTableAdmin

EXPORT = "conversations.export_ratings"
MAX_EXPORTED = 100_000  # ratings


@admin.register(Rating)
class RatingAdmin(LargeTableAdmin):
    """Everybody with the view permission sees the values; comments need
    `inspect_turn`, as they may quote the conversation."""

    date_hierarchy = "created_at"
    list_display = ["id", "turn_id", "user", "value", "model_name", "created_at"]
    list_filter = ["value", "created_at"]
    list_select_related = ["user", "turn__language_model__provider"]
    ordering = ["-pk"]
    search_fields = ["=turn__id", "=turn__conversation__id", "=user__username"]
    search_help_text = _("The id of a turn or a conversation, or a user's name.")
    actions = ["export_as_csv", "export_as_json"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_export_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(EXPORT)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = ["turn", "user", "value", "created_at", "updated_at"]
        return [*fields, "comment"] if request.user.has_perm(INSPECT) else fields

    @admin.display(description=_("model"))
    def model_name(self, rating: Rating) -> str:
        return str(rating.turn.language_model or "–")

    @admin.action(description=_("Export as CSV"), permissions=["export"])
    def export_as_csv(
        self, request: HttpRequest, queryset: QuerySet[Rating]
    ) -> StreamingHttpResponse:
        _record_export(request, queryset)
        writer = csv.writer(_Echo())
        rows = self._rows(request, queryset)
        lines = (writer.writerow(map(quote_formula, row)) for row in rows)
        return StreamingHttpResponse(
            lines,
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": 'attachment; filename="ratings.csv"'},
        )

    @admin.action(description=_("Export as JSON"), permissions=["export"])
    def export_as_json(
        self, request: HttpRequest, queryset: QuerySet[Rating]
    ) -> HttpResponse:
        _record_export(request, queryset)
        names, *rows = self._rows(request, queryset)
        data = [dict(zip(names, row, strict=True)) for row in rows]
        return HttpResponse(
            json.dumps({"data": data}, ensure_ascii=False),
            content_type="application/json",
            headers={"Content-Disposition": 'attachment; filename="ratings.json"'},
        )

    def _rows(
        self, request: HttpRequest, queryset: QuerySet[Rating]
    ) -> Iterator[list[str]]:
        """The names of the columns, then one row for each rating."""
        names = ["id", "turn", "conversation", "user", "model", "value", "created_at"]
        with_comments = request.user.has_perm(INSPECT)
        yield [*names, "comment"] if with_comments else names
        for rating in queryset[:MAX_EXPORTED]:
            row = [
                str(rating.pk),
                rating.turn_id,
                rating.turn.conversation_id,
                str(rating.user),
                self.model_name(rating),
                rating.value,
                rating.created_at.isoformat(),
            ]
            yield [*row, rating.comment] if with_comments else row


def _record_export(request: HttpRequest, rows: QuerySet[Rating]) -> None:
    """One event: a rating each would be too many."""
    record_event(
        "content.export",
        target=("conversations.rating", ""),
        reason=request.session.get(READING_REASON, ""),
        details={
            "count": rows[:MAX_EXPORTED].count(),
            "comments": request.user.has_perm(INSPECT),
        },
    )


class _Echo:
    """A file that returns what is written, as `csv.writer` wants one."""

    def write(self, text: str) -> str:
        return text
