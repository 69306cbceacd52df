"""Admin of legal holds. A hold is set with a reason and lifted with another."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from conversations.models import LegalHold
from llm.admin import ask_about_rows, filled_form


class LiftForm(forms.Form):
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        min_length=5,
        max_length=500,
        widget=forms.TextInput({"class": "vTextField"}),
    )


@admin.register(LegalHold)
class LegalHoldAdmin(admin.ModelAdmin):
    list_display = ["covered", "reason", "created_at", "created_by"]
    list_select_related = ["user", "conversation", "created_by"]
    raw_id_fields = ["user", "conversation"]
    fields = ["user", "conversation", "reason"]
    search_fields = ["=user__username", "=conversation__id"]
    search_help_text = gettext_lazy("The name of a user, or the id of a conversation.")
    actions = ["lift"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """It is lifted instead, with a reason."""
        return False

    def has_lift_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("conversations.delete_legalhold")

    def save_model(
        self, request: HttpRequest, obj: LegalHold, form: Any, change: bool
    ) -> None:
        obj.created_by = request.user  # type: ignore[assignment]
        super().save_model(request, obj, form, change)
        obj.record("set", obj.reason)

    @admin.display(description=gettext_lazy("what is held"))
    def covered(self, row: LegalHold) -> str:
        if row.user is not None:
            return _("everything of %(user)s") % {"user": row.user}
        return _("conversation %(id)s") % {"id": row.conversation_id}

    @admin.action(
        description=gettext_lazy("Lift the selected holds…"), permissions=["lift"]
    )
    def lift(
        self, request: HttpRequest, rows: QuerySet[LegalHold]
    ) -> HttpResponse | None:
        form = filled_form(request, LiftForm)
        if not form.is_bound or not form.is_valid():
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Lift these holds?"),
                effect=_(
                    "From then on retention and deletion erase what they covered."
                ),
                form=form,
            )
        count = 0
        with transaction.atomic():
            for row in rows.select_related("conversation"):
                row.record("lift", form.cleaned_data["reason"])
                row.delete()
                count += 1
        text = ngettext("%(count)d hold lifted.", "%(count)d holds lifted.", count)
        self.message_user(request, text % {"count": count})
        return None
