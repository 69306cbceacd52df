"""Admin of presets and of their context sources."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from conversations.admin.presets.drafts import OVERRIDE
from conversations.admin.presets.evaluations import EvaluationsAdmin, preset_sets
from conversations.context import Reader, Rendering, render
from conversations.forms.preset_forms import (
    ContextSourceForm,
    ContextSourceTrialForm,
    PresetForm,
)
from conversations.models.preset import ContextSource, Preset, PresetSource
from conversations.models.staff.evaluation import EvaluationRun, PresetDraft
from conversations.models.staff.preset_content import FIELDS
from conversations.models.staff.versions import PresetVersion
from llm.admin import (
    GroupRightsMixin,
    SecretFormAdmin,
    UsedByAdmin,
    switch_enabled,
)
from llm.concurrency.thread_lending import lend_thread
from llm.models import LanguageModel
from tools.models import Tool

MAX_SHOWN = 50_000  # characters of the text that a trial shows


#: What only the permission to change presets lets staff change.
ACCESS = ["name", "enabled", "is_default", "groups", "owner_group"]


EVALUATED = [name for name in FIELDS if name not in ("label", "description", "sources")]


class PresetSourceInline(admin.TabularInline):
    """Permission to change a preset includes its context sources. Its owner group only
    sees them: a preview would show what a source has."""

    model = PresetSource
    fields = ["position", "source"]
    extra = 1
    verbose_name = _("context source")
    verbose_name_plural = _("context sources, in the order of their position")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may_view = request.user.has_perm("conversations.view_preset")
        return may_view or self._may_change(request) or is_owner(request.user, obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may_add = request.user.has_perm("conversations.add_preset")
        return self._may_change(request, obj) or (obj is None and may_add)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_change(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_change(request, obj)

    def _may_change(self, request: HttpRequest, obj: Any = None) -> bool:
        may_change = request.user.has_perm("conversations.change_preset")
        return may_change and not is_evaluated(request.user, obj)


def is_evaluated(user: Any, preset: Preset | None) -> bool:
    """Whether this user's changes of the preset must pass an evaluation."""
    if preset is None or user.has_perm(OVERRIDE):
        return False
    return bool(preset_sets(preset).filter(blocks_publishing=True).exists())


def is_owner(user: Any, preset: Preset | None) -> bool:
    """Whether the user is in the owner group of this preset, or of any."""
    owned = Preset.objects.filter(owner_group__user=user.pk)
    return (owned.filter(pk=preset.pk) if preset else owned).exists()


def find_choices(field: str, user: Any, preset_id: str) -> Any:
    """The models or tools that the user may use, and those that the preset has."""
    own = Preset.objects.filter(pk=preset_id)
    if field == "tools":
        usable: Any = Tool.objects.visible_to(user)
        rows: Any = Tool.objects.order_by("name")
    else:
        usable = LanguageModel.objects.available_to(user)
        rows = LanguageModel.objects.select_related("provider")
    has = Q(pk__in=own.exclude(**{field: None}).values(field))
    return rows.filter(has | Q(pk__in=usable.values("pk")))


@admin.register(Preset)
class PresetAdmin(GroupRightsMixin, UsedByAdmin, EvaluationsAdmin):
    parts = (EvaluationRun, PresetDraft, PresetSource, PresetVersion)
    form = PresetForm
    version_model = PresetVersion
    actions = ["enable", "disable", "change_groups"]
    restore_note = _("Who may use the preset, and its name, stay as they are.")
    change_form_template = "admin/conversations/preset/change_form.html"
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
    filter_horizontal = ["tools", "groups", "allowed_models"]
    inlines = [PresetSourceInline]
    fieldsets = [
        (None, {"fields": ["name", "label", "description", "enabled", "is_default"]}),
        (
            _("Start of a conversation"),
            {"fields": ["instructions", "language_model", "options"]},
        ),
        (
            _("Tools and access"),
            {"fields": ["tools", "only_named_tools", "groups", "owner_group"]},
        ),
        (
            _("Limits"),
            {"fields": ["allowed_models", "max_tokens", "max_cost", "max_tool_calls"]},
        ),
        (None, {"fields": ["note"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Preset]:
        rows: QuerySet[Preset] = super().get_queryset(request)
        rows = rows.prefetch_related("groups", "links__source")
        if not super().has_view_permission(request):
            rows = rows.filter(owner_group__user=request.user.pk)
        return rows.annotate(tool_count=Count("tools", distinct=True))

    def draft_querysets(self, request: HttpRequest, preset: Preset) -> dict[str, Any]:
        if super().has_change_permission(request, preset):
            return {}
        names = ("language_model", "allowed_models", "tools")
        return {n: find_choices(n, request.user, str(preset.pk)) for n in names}

    @admin.action(description=_("Enable"), permissions=["grant"])
    def enable(self, request: HttpRequest, rows: QuerySet[Preset]) -> None:
        switch_enabled(self, request, rows, on=True)

    @admin.action(description=_("Disable"), permissions=["grant"])
    def disable(self, request: HttpRequest, rows: QuerySet[Preset]) -> None:
        switch_enabled(self, request, rows, on=False)

    # Permissions

    def has_module_permission(self, request: HttpRequest) -> bool:
        return super().has_module_permission(request) or is_owner(request.user, None)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_view_permission(request, obj) or is_owner(request.user, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may_change = super().has_change_permission(request, obj)
        return may_change or is_owner(request.user, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Its owner group does not change who may use it. What an evaluation tries is
        changed in the draft."""
        if obj is None:
            return []
        changes_access = super().has_change_permission(request, obj)
        return [
            *([] if changes_access else ACCESS),
            *(EVALUATED if is_evaluated(request.user, obj) else []),
        ]

    def formfield_for_dbfield(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        name = db_field.name
        if name in ("language_model", "allowed_models"):  # their labels name providers
            kwargs["queryset"] = LanguageModel.objects.select_related("provider")
        if name in ("language_model", "allowed_models", "tools"):
            match = request.resolver_match
            preset_id = match.kwargs.get("object_id", "") if match else ""
            if preset_id and not super().has_change_permission(request):
                kwargs["queryset"] = find_choices(name, request.user, preset_id)
        return super().formfield_for_dbfield(db_field, request, **kwargs)

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
    actions = ["enable", "disable"]

    class Media:
        css = {"all": ["css/tool-admin.css"]}

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        writes = self.has_change_permission(request, obj) or (
            obj is None and self.has_add_permission(request)
        )
        secret = ["secret"] if writes else []
        return [
            (
                None,
                {
                    "fields": [
                        *("name", "title", "kind", "enabled", "on_demand", "groups")
                    ]
                },
            ),
            (_("Text"), {"fields": ["text"]}),
            (_("Python function"), {"fields": ["function"]}),
            (
                _("HTTP request"),
                {"fields": ["url", *secret, "headers", "pointer", "networks"]},
            ),
            (_("MCP resource"), {"fields": ["mcp_server", "uri"]}),
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

    @admin.action(description=_("Enable"), permissions=["change"])
    def enable(self, request: HttpRequest, rows: QuerySet[ContextSource]) -> None:
        switch_enabled(self, request, rows, on=True)

    @admin.action(description=_("Disable"), permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[ContextSource]) -> None:
        switch_enabled(self, request, rows, on=False)

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
        source = row.to_trial_source()
        with lend_thread():
            [done] = async_to_sync(render)([source], reader)
        outcome = "failed" if done.reason else f"{len(done.text.encode())} bytes"
        self.log_change(
            request, row, f"Tried as {user}: {outcome}, {done.seconds:.2f} s."
        )
        return done

    @admin.display(description=_("presets"))
    def preset_names(self, row: ContextSource) -> str:
        return ", ".join(preset.name for preset in row.presets.all()) or "–"
