"""Admin of the rules of retention."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from conversations.models import RetentionRule


@admin.register(RetentionRule)
class RetentionRuleAdmin(admin.ModelAdmin):
    list_display = ["group", "period"]
    list_select_related = ["group"]

    @admin.display(description=_("conversations are erased"))
    def period(self, rule: RetentionRule) -> str:
        text = ngettext(
            "after %(days)d day in which nothing happened",
            "after %(days)d days in which nothing happened",
            rule.days,
        )
        return text % {"days": rule.days}
