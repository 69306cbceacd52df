"""Admin of model pools: one name for the same model at several hosts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from llm.error_texts.staff_instructions import instruct
from llm.forms.fields import OneFullNameField
from llm.models import LanguageModel, ModelPool, PoolMember
from llm.pools import load


class PoolMemberInline(admin.TabularInline):
    model = PoolMember
    extra = 1

    def formfield_for_foreignkey(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        if db_field.name == "model":
            kwargs["form_class"] = OneFullNameField
            kwargs["queryset"] = LanguageModel.objects.select_related("provider")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@admin.register(ModelPool)
class ModelPoolAdmin(admin.ModelAdmin):
    list_display = ["name", "enabled", "strategy", "hosts"]
    list_filter = ["enabled", "strategy"]
    search_fields = ["name", "members__model__name"]
    fields = ["name", "enabled", "strategy", "cooldown", "hosts"]
    readonly_fields = ["hosts"]
    inlines = [PoolMemberInline]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ModelPool]:
        members = PoolMember.objects.select_related("model__provider")
        rows = super().get_queryset(request)
        return rows.prefetch_related(Prefetch("members", members))

    @admin.display(description=gettext_lazy("Hosts now"))
    def hosts(self, pool: ModelPool) -> SafeString | str:
        """What this process knows of each host."""
        if pool.pk is None or not pool.members.all():
            return _("None; the name is refused until a model is added.")
        lines = ((_describe(pool, member),) for member in pool.members.all())
        return format_html_join("", "<div>{}</div>", lines)


def _describe(pool: ModelPool, member: PoolMember) -> str:
    model = member.model
    name = f"{model.full_name} × {member.weight}"
    if why := model.why_unusable:
        return _("%(name)s: not called: %(why)s") % {"name": name, "why": instruct(why)}
    count = load.running.get(member.model_id, 0)
    busy = ngettext("%(count)d answer running", "%(count)d answers running", count) % {
        "count": count
    }
    if load.is_cooling(member.model_id, pool.cooldown):
        return _("%(name)s: %(busy)s, cools down after failures") % {
            "name": name,
            "busy": busy,
        }
    return f"{name}: {busy}"
