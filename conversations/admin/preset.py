from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from conversations.context import Reader, Rendering, render
from conversations.models.preset import ContextSource, Preset, PresetSource
from conversations.pages.preset_forms import (
    ContextSourceForm,
    ContextSourceTrialForm,
    PresetForm,
)
from llm.admin import SecretFormAdmin

MAX_SHOWN = 50_000  # characters of the text that a trial shows


class PresetSourceInline(admin.TabularInline):
    """Permission to change a preset includes its context sources."""

    model = PresetSource
    fields = ["position", "source"]
    extra = 1
    verbose_name = _("source of context")
    verbose_name_plural = _("sources of context, in the order of their position")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may_view = request.user.has_perm("conversations.view_preset")
        return may_view or self._may_change(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may_add = request.user.has_perm("conversations.add_preset")
        return self._may_change(request) or (obj is None and may_add)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_change(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_change(request)

    def _may_change(self, request: HttpRequest) -> bool:
        return request.user.has_perm("conversations.change_preset")


@admin.register(Preset)
class PresetAdmin(admin.ModelAdmin):
    form = PresetForm
    list_display = [
        "name",
        "label",
        "enabled",
        "is_default",
        "language_model",
        "source_names",
        "tool_count",
        "group_names",
    ]
    list_filter = ["enabled", "is_default", "groups", "sources"]
    list_select_related = ["language_model"]
    search_fields = ["name", "label", "description", "instructions"]
    filter_horizontal = ["tools", "groups"]
    inlines = [PresetSourceInline]
    fieldsets = [
        (None, {"fields": ["name", "label", "description", "enabled", "is_default"]}),
        (
            _("What a conversation begins with"),
            {"fields": ["instructions", "language_model", "options"]},
        ),
        (
            _("What it may use, and who may use it"),
            {"fields": ["tools", "only_named_tools", "groups"]},
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Preset]:
        rows: QuerySet[Preset] = super().get_queryset(request)
        rows = rows.prefetch_related("groups", "links__source")
        return rows.annotate(tool_count=Count("tools", distinct=True))

    @admin.display(description=_("context"))
    def source_names(self, row: Preset) -> str:
        return ", ".join(link.source.name for link in row.links.all()) or "–"

    @admin.display(description=_("tools"))
    def tool_count(self, row: Any) -> str:
        if row.tool_count or row.only_named_tools:
            return str(row.tool_count or _("none"))
        return str(_("all"))

    @admin.display(description=_("groups"))
    def group_names(self, row: Preset) -> str:
        names = ", ".join(group.name for group in row.groups.all())
        return names or str(_("everybody"))


@admin.register(ContextSource)
class ContextSourceAdmin(SecretFormAdmin):
    form = ContextSourceForm
    change_form_template = "admin/conversations/contextsource/change_form.html"
    list_display = [
        "name",
        "title",
        "kind",
        "enabled",
        "on_demand",
        "timeout",
        "max_size",
        "preset_names",
    ]
    list_filter = ["kind", "enabled", "on_demand", "presets"]
    search_fields = ["name", "title", "url", "function", "uri"]
    readonly_fields = ["created_at", "updated_at"]

    class Media:
        css = {"all": ["css/tool-admin.css"]}

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        writes = self.has_change_permission(request, obj) or (
            obj is None and self.has_add_permission(request)
        )
        secret = ["secret"] if writes else []
        return [
            (None, {"fields": ["name", "title", "kind", "enabled", "on_demand"]}),
            (_("Of a text"), {"fields": ["text"]}),
            (_("Of a Python function"), {"fields": ["function"]}),
            (
                _("Of an HTTP address"),
                {"fields": ["url", *secret, "headers", "pointer", "networks"]},
            ),
            (_("Of an MCP resource"), {"fields": ["mcp_server", "uri"]}),
            (_("Limits"), {"fields": ["max_size", "timeout", "cache_seconds"]}),
            (None, {"fields": self.readonly_fields}),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ContextSource]:
        rows: QuerySet[ContextSource] = super().get_queryset(request)
        return rows.select_related("mcp_server").prefetch_related("presets")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.try_view)
        name = "conversations_contextsource_try"
        return [path("<int:pk>/try/", view, name=name), *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context["original"]
        context["may_try"] = row is not None and self.has_try_permission(request)
        return super().render_change_form(request, context, *args, **kwargs)

    # Try

    def has_try_permission(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request) or self._may_try_as_others(request)

    def _may_try_as_others(self, request: HttpRequest) -> bool:
        return request.user.has_perm("conversations.try_contextsource")

    def try_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        if not self.has_try_permission(request):
            raise PermissionDenied
        row = self.get_queryset(request).filter(pk=pk).first()
        if row is None:
            raise Http404
        form = ContextSourceTrialForm(
            *([request.POST] if request.method == "POST" else []),
            user=request.user,
            may_choose=self._may_try_as_others(request),
        )
        done = self._try(request, row, form) if form.is_valid() else None
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Try %(source)s") % {"source": row},
            "row": row,
            "form": form,
            "done": done,
            "size": len(done.text.encode()) if done else 0,
            "text": done.text[:MAX_SHOWN] if done else "",
        }
        template = "admin/conversations/contextsource/try.html"
        return TemplateResponse(request, template, context)

    def _try(
        self, request: HttpRequest, row: ContextSource, form: ContextSourceTrialForm
    ) -> Rendering:
        user = form.cleaned_data["username"]
        reader = Reader(user_id=user.pk, username=user.get_username())
        [done] = async_to_sync(render)([row.to_trial_source()], reader)
        outcome = "failed" if done.reason else f"{len(done.text.encode())} bytes"
        self.log_change(
            request, row, f"Tried as {user}: {outcome}, {done.seconds:.2f} s."
        )
        return done

    @admin.display(description=_("presets"))
    def preset_names(self, row: ContextSource) -> str:
        return ", ".join(preset.name for preset in row.presets.all()) or "–"
