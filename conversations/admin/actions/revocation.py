"""The action that revokes access tokens and links, after a question."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from llm.admin import ask_about_rows, is_confirmed, report_rows


class RevocationMixin(admin.ModelAdmin):
    """For rows with `revoked_at` and `revoke`."""

    revocation_effect: Any = gettext_lazy("A revocation cannot be taken back.")

    @admin.action(
        description=gettext_lazy("Revoke the selected ones…"), permissions=["change"]
    )
    def revoke(self, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse | None:
        if not is_confirmed(request):
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Revoke these?"),
                effect=self.revocation_effect,
            )
        left_out: Counter[str] = Counter()
        count = 0
        for row in rows:
            if row.revoked_at is not None:
                left_out[_("revoked already")] += 1
                continue
            row.revoke()
            self.log_change(request, row, "Revoked.")
            count += 1
        text = ngettext("%(count)d is revoked", "%(count)d are revoked", count)
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))
        return None
