"""The action that erases people, with a reason."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from conversations.access.account_deletion import LastSuperuser
from conversations.admin.grantable_rights import may_manage
from conversations.engine.maintenance.erasure import compact, erase_user
from conversations.models import Turn, UnderLegalHold
from llm.admin import ask_about_rows, filled_form, report_rows

ERASE = "conversations.erase_user"
MAX_TURNS = 5000  # of one person; the command `erase_user` takes any number


class ErasureForm(forms.Form):
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        min_length=5,
        max_length=500,
        widget=forms.TextInput({"class": "vTextField"}),
    )


class ErasureMixin(admin.ModelAdmin):
    def has_erase_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(ERASE)

    @admin.action(
        description=gettext_lazy("Erase the selected users…"), permissions=["erase"]
    )
    def erase(self, request: HttpRequest, rows: QuerySet[User]) -> HttpResponse | None:
        form = filled_form(request, ErasureForm)
        if not form.is_bound or not form.is_valid():
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Erase these users?"),
                effect=_(
                    "Their accounts, conversations, files and everything that names"
                    " them are erased at once. It cannot be undone. The reason stays"
                    " in the audit log, so do not name them in it."
                ),
                form=form,
            )
        left_out: Counter[str] = Counter()
        count = 0
        for row in list(rows):
            if why := _why_left_out(request, row):
                left_out[why] += 1
                continue
            try:
                steps = erase_user(
                    row, reason=form.cleaned_data["reason"], actor=request.user
                )
                deque(steps, maxlen=0)
            except UnderLegalHold:
                left_out[_("under a legal hold")] += 1
            except LastSuperuser:
                left_out[_("the only administrator")] += 1
            else:
                count += 1
        if count and (problem := compact()):
            text = _("Deleted bytes stay in the database's file for now: %(why)s.")
            self.message_user(request, text % {"why": problem})
        text = ngettext("%(count)d user erased", "%(count)d users erased", count)
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))
        return None


def _why_left_out(request: HttpRequest, row: Any) -> str:
    if row.pk == request.user.pk:
        return _("your own account")
    if not may_manage(request.user, row):
        return _("with rights that you do not have")
    if Turn.objects.filter(conversation__owner=row).count() > MAX_TURNS:
        return _("too large for this page: use manage.py erase_user")
    return ""
