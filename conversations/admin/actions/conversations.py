"""Actions on several conversations: archive, delete, export."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from conversations.admin.conversation_content import ConversationContentAdmin
from conversations.http.streamed_download import download
from conversations.models import Conversation, Turn
from conversations.transfer.export import write_zip
from llm.admin import ask_about_rows, change_each, is_confirmed, report_rows

MAX_CHANGED = 1_000  # conversations of one action
MAX_EXPORTED = 500


class ConversationActionsMixin(ConversationContentAdmin):
    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = super().get_actions(request)
        found.pop("delete_selected", None)  # which would erase what still runs
        return found

    @admin.action(
        description=gettext_lazy("Archive the selected conversations"),
        permissions=["change"],
    )
    def archive(self, request: HttpRequest, rows: QuerySet[Conversation]) -> None:
        now = timezone.now()

        def archive(row: Conversation) -> str:
            if row.deleted_at is not None:
                return _("deleted")
            if row.is_temporary:
                return _("temporary")
            if row.archived_at is not None:
                return _("archived already")
            row.archived_at, row.pinned_at = now, None
            row.save(update_fields=["archived_at", "pinned_at"])
            self.log_change(request, row, "Archived.")
            return ""

        count, left_out = change_each(self._bounded(request, rows), archive)
        text = ngettext(
            "%(count)d conversation archived",
            "%(count)d conversations archived",
            count,
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))

    @admin.action(
        description=gettext_lazy("Take the selected conversations out of the archive"),
        permissions=["change"],
    )
    def unarchive(self, request: HttpRequest, rows: QuerySet[Conversation]) -> None:

        def unarchive(row: Conversation) -> str:
            if row.archived_at is None:
                return _("not archived")
            row.archived_at = None
            row.save(update_fields=["archived_at"])
            self.log_change(request, row, "Taken out of the archive.")
            return ""

        count, left_out = change_each(self._bounded(request, rows), unarchive)
        text = ngettext(
            "%(count)d conversation taken out of the archive",
            "%(count)d conversations taken out of the archive",
            count,
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))

    @admin.action(
        description=gettext_lazy("Delete the selected conversations…"),
        permissions=["delete"],
    )
    def delete_softly(
        self, request: HttpRequest, rows: QuerySet[Conversation]
    ) -> HttpResponse | None:
        if not is_confirmed(request):
            return self._ask_before_deletion(request, rows)

        def delete(row: Conversation) -> str:
            if row.deleted_at is not None:
                return _("deleted already")
            row.delete_softly()
            self.log_change(request, row, "Deleted.")
            return ""

        count, left_out = change_each(self._bounded(request, rows), delete)
        text = ngettext(
            "%(count)d conversation deleted", "%(count)d conversations deleted", count
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))
        return None

    def _ask_before_deletion(
        self, request: HttpRequest, rows: QuerySet[Conversation]
    ) -> HttpResponse:
        keys = list(rows.values_list("pk", flat=True)[:MAX_CHANGED])
        turns = Turn.objects.filter(conversation__in=keys)
        running = turns.not_finished().count()
        counts = {"turns": turns.count(), "running": running}
        effect = _(
            "Their owners no longer see them, and the retention erases them later."
            " They have %(turns)d turns; %(running)d of these run or wait and are"
            " stopped."
        )
        return ask_about_rows(
            self,
            request,
            rows,
            title=_("Delete these conversations?"),
            effect=effect % counts,
        )

    @admin.action(
        description=gettext_lazy("Export the selected conversations"),
        permissions=["view"],
    )
    def export(
        self, request: HttpRequest, rows: QuerySet[Conversation]
    ) -> StreamingHttpResponse | None:
        """As a ZIP archive of JSON files, which an import reads."""
        keys = list(rows.values_list("pk", flat=True)[: MAX_EXPORTED + 1])
        if len(keys) > MAX_EXPORTED:
            text = _("Choose at most %(count)d conversations.")
            text = text % {"count": MAX_EXPORTED}
            self.message_user(request, text, messages.ERROR)
            return None
        if not keys:
            text = _("None of these conversations is shown to you.")
            self.message_user(request, text, messages.ERROR)
            return None
        chosen = Conversation.objects.filter(pk__in=keys)
        for row in chosen:
            self.log_change(request, row, "Exported.")
        pieces, name = write_zip(chosen, "json"), "conversations.zip"
        return download(request, pieces, "application/zip", name)

    def _bounded(
        self, request: HttpRequest, rows: QuerySet[Conversation]
    ) -> list[Conversation]:
        """The first rows; a message says where others are left."""
        chosen = list(rows[: MAX_CHANGED + 1])
        if len(chosen) > MAX_CHANGED:
            text = _("Only the first %(count)d were looked at; repeat the action.")
            text = text % {"count": MAX_CHANGED}
            self.message_user(request, text, messages.WARNING)
        return chosen[:MAX_CHANGED]
