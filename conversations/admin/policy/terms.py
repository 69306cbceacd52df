"""Admin of the terms of use. A draft is edited, then published; from then on its text
stays, as people have accepted it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from conversations.models import TermsVersion
from llm.admin import ask_about_rows, is_confirmed


@admin.register(TermsVersion)
class TermsVersionAdmin(admin.ModelAdmin):
    list_display = ["__str__", "published_at", "applies_to_tokens", "times_accepted"]
    fields = ["text", "applies_to_tokens", "published_at"]
    readonly_fields = ["published_at"]
    actions = ["publish"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[TermsVersion]:
        rows: QuerySet[TermsVersion] = super().get_queryset(request)
        return rows.annotate(acceptance_count=Count("acceptances"))

    @admin.display(description=gettext_lazy("accepted by"), ordering="acceptance_count")
    def times_accepted(self, row: Any) -> int:
        return int(row.acceptance_count)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        is_published = obj is not None and obj.number is not None
        return ["text", "published_at"] if is_published else ["published_at"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is None or obj.number is not None:
            return False
        return super().has_delete_permission(request, obj)

    def has_publish_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("conversations.publish_termsversion")

    @admin.action(
        description=gettext_lazy("Publish the selected draft…"), permissions=["publish"]
    )
    def publish(
        self, request: HttpRequest, rows: QuerySet[TermsVersion]
    ) -> HttpResponse | None:
        drafts = rows.filter(number=None)
        if drafts.count() != 1 or rows.count() != 1:
            self.message_user(request, _("Select one draft."), "ERROR")
            return None
        if not is_confirmed(request):
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Publish these terms?"),
                effect=_(
                    "Everybody must accept them before using the chat again. The text"
                    " can no longer be changed."
                ),
            )
        with transaction.atomic():
            # Locked, so that two publications have different numbers.
            list(TermsVersion.objects.select_for_update())
            draft = TermsVersion.objects.get(pk=drafts.get().pk)
            draft.publish()
            self.log_change(request, draft, "Published.")
        text = _(
            "Published as version %(number)d. Other processes follow within five"
            " seconds."
        )
        self.message_user(request, text % {"number": draft.number})
        return None
