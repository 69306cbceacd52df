"""Admin pages of a preset's draft: edit, compare, preview, publish."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from conversations.engine.evaluations.preview import PreviewRefused, start_preview
from conversations.forms.draft_forms import DraftForm, PreviewForm
from conversations.models.preset import ContextSource, Preset
from conversations.models.staff.evaluation import (
    DraftChanged,
    NotPublishable,
    PresetDraft,
    PreviewChat,
    check_publishable,
)
from conversations.models.staff.preset_content import Content
from llm.errors import LLMError
from llm.wire.items import Item, text_of
from tools.admin.versions import VersionedAdmin
from tools.text_diff import diff_fields

OVERRIDE = "conversations.publish_unevaluated"
_CHANGED_MEANWHILE = _(
    "The draft or the live preset has changed meanwhile; look again."
)


def find_draft(preset: Preset) -> PresetDraft | None:
    return PresetDraft.objects.filter(preset=preset).first()


def draft_content(preset: Preset) -> Content:
    """Of the draft, else of the live preset."""
    draft = find_draft(preset)
    content: Content = draft.content if draft else preset.content()
    return content


def find_refused(
    preset: Preset, content: Content, querysets: Mapping[str, Any]
) -> list[str]:
    """Names in the content that `querysets` lack, and names of context sources that
    differ. Deleted rows do not count."""
    drafted = preset.with_content(content)
    named = {
        "tools": drafted.linked_tools(),
        "allowed_models": drafted.linked_models(),
        "language_model": [drafted.language_model] if drafted.language_model else [],
    }
    refused: list[str] = []
    for field, rows in named.items():
        chosen = querysets[field].filter(pk__in=[row.pk for row in rows])
        usable = set(chosen.values_list("pk", flat=True))
        refused += [str(row) for row in rows if row.pk not in usable]
    differ = set(content.get("sources", ())) ^ set(preset.content()["sources"])
    sources = ContextSource.objects.filter(name__in=differ).order_by("name")
    return list(dict.fromkeys([*refused, *sources.values_list("name", flat=True)]))


class DraftsAdmin(VersionedAdmin):
    """Pages below a preset's page. Who may change a preset may use them."""

    def get_urls(self) -> list[URLPattern]:
        return [
            self.page_url("draft", self.draft_view),
            self.page_url("draft/discard", require_POST(self.discard_view)),
            self.page_url("draft/publish", require_POST(self.publish_view)),
            self.page_url("preview", never_cache(self.preview_view)),
            *super().get_urls(),
        ]

    def page_url(self, route: str, view: Any) -> URLPattern:
        name = "_".join(p for p in route.split("/") if "<" not in p)
        url: URLPattern = path(
            f"<int:pk>/{route}/",
            self.admin_site.admin_view(view),
            name=f"conversations_preset_{name}",
        )
        return url

    def find_changeable(self, request: HttpRequest, pk: int) -> Preset:
        row: Preset = self.find_row(request, pk)
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        return row

    def show_page(
        self, request: HttpRequest, page: str, title: Any, context: Mapping[str, Any]
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            **context,
        }
        template = f"admin/conversations/preset/{page}.html"
        return TemplateResponse(request, template, context)

    # Restoring

    def restore(self, request: HttpRequest, version: Any) -> list[str]:
        """The owner group restores all but the context sources, which stay as they
        are."""
        preset = version.subject
        if self.draft_querysets(request, preset):
            sources = preset.content()["sources"]
            version.snapshot = {**version.snapshot, "sources": sources}
        self.check_choices(request, preset, version.snapshot)
        if not request.user.has_perm(OVERRIDE):
            try:
                check_publishable(preset, version.snapshot)
            except NotPublishable as exc:
                raise ValidationError(str(exc)) from exc
        return super().restore(request, version)

    # Draft

    def draft_querysets(self, request: HttpRequest, preset: Preset) -> dict[str, Any]:
        """What the user may choose from, by field; empty for everything."""
        raise NotImplementedError

    def check_choices(
        self, request: HttpRequest, preset: Preset, content: Content
    ) -> None:
        """Raises ValidationError if the content has models or tools that the user may
        not choose, or changes the context sources without the right to.

        A draft or a version may still name what an administrator has removed since.
        """
        querysets = self.draft_querysets(request, preset)
        if not querysets:
            return
        if names := find_refused(preset, content, querysets):
            text = _("This is up to staff who may change presets: %(names)s.")
            raise ValidationError(text, params={"names": ", ".join(names)})

    def draft_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        draft = find_draft(preset)
        try:
            form = self._form(request, preset, draft)
        except ValidationError as exc:  # the draft names a model that is gone
            messages.error(request, " ".join(exc.messages))
            form = self._form(request, preset, None)
        seen = draft.state if draft else ""
        if form.is_bound and form.is_valid():
            if self._save_draft(request, preset, form):
                return redirect("admin:conversations_preset_draft", pk)
            draft = find_draft(preset)  # shown above what was not saved
            seen = draft.state if draft else ""
        elif form.is_bound:  # what is entered still builds on the draft seen first
            seen = request.POST.get("seen", "")
        live = preset.content()
        context = {
            "row": preset,
            "form": form,
            "draft": draft,
            "seen": seen,
            "differences": diff_fields(live, draft.content) if draft else [],
            "refusal": self._refusal(request, preset, draft),
            "obstacle": self._obstacle(preset, draft),
            "may_override": request.user.has_perm(OVERRIDE),
        }
        title = _("Draft of %(row)s") % {"row": preset}
        return self.show_page(request, "draft", title, context)

    def _save_draft(
        self, request: HttpRequest, preset: Preset, form: DraftForm
    ) -> bool:
        """False if the draft is no longer the one that the page showed."""
        try:
            PresetDraft.replace(
                preset,
                seen=request.POST.get("seen", ""),
                content=form.content(),
                note=form.cleaned_data["note"],
                made_by=request.user,
            )
        except DraftChanged:
            messages.error(request, _CHANGED_MEANWHILE)
            return False
        self.log_change(request, preset, "Draft saved.")
        messages.success(request, _("The draft is saved. It is not live."))
        return True

    def _form(
        self, request: HttpRequest, preset: Preset, draft: PresetDraft | None
    ) -> DraftForm:
        querysets = self.draft_querysets(request, preset)
        return DraftForm(
            request.POST if request.method == "POST" else None,
            preset=preset,
            draft=draft,
            querysets=querysets,
            may_set_sources=not querysets,
        )

    def _refusal(
        self, request: HttpRequest, preset: Preset, draft: PresetDraft | None
    ) -> str:
        """Why this user may not publish the draft; "" if the user may."""
        try:
            if draft is not None:
                self.check_choices(request, preset, draft.content)
        except ValidationError as exc:
            return " ".join(exc.messages)
        return ""

    def _obstacle(self, preset: Preset, draft: PresetDraft | None) -> str:
        """Why the draft may not go live; "" if it may."""
        try:
            if draft is not None:
                check_publishable(preset, draft.content)
        except NotPublishable as exc:
            return str(exc)
        return ""

    def discard_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        try:
            is_discarded = PresetDraft.discard(
                preset, seen=request.POST.get("seen", "")
            )
        except DraftChanged:
            messages.error(request, _CHANGED_MEANWHILE)
            return redirect("admin:conversations_preset_draft", pk)
        if is_discarded:
            self.log_change(request, preset, "Draft discarded.")
            messages.success(request, _("The draft is discarded."))
        return redirect("admin:conversations_preset_change", pk)

    def publish_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        draft, page = find_draft(preset), "admin:conversations_preset_draft"
        if draft is None:
            messages.error(request, _("There is no draft."))
            return redirect(page, pk)
        wants = "override" in request.POST and request.user.has_perm(OVERRIDE)
        seen = request.POST.get("seen", "")
        try:
            self.check_choices(request, preset, draft.content)
            gone = draft.publish(request.user, seen=seen, may_override=wants)
        except DraftChanged:
            messages.error(request, _CHANGED_MEANWHILE)
        except NotPublishable as exc:
            messages.error(request, str(exc))
        except ValidationError as exc:
            messages.error(request, " ".join(exc.messages))
        else:
            how = "Draft published without its evaluation." if wants else ""
            self.log_change(request, preset, how or "Draft published.")
            messages.success(request, _("The draft is live."))
            self.warn_of_gone(request, gone)
            return redirect("admin:conversations_preset_change", pk)
        return redirect(page, pk)

    # Preview chat

    def preview_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        preset = self.find_changeable(request, pk)
        user: Any = request.user
        chats = PreviewChat.objects.filter(preset=preset, user=user)
        page = redirect("admin:conversations_preset_preview", pk)
        if "clear" in request.POST:
            chats.delete()
            return page
        if "stop" in request.POST:
            chats.stop()
            return page
        form = self._preview_form(request, chats.first())
        if form.is_bound and form.is_valid():
            try:
                content = draft_content(preset)
                self.check_choices(request, preset, content)
                start_preview(preset, content, user, form.cleaned_data["text"])
            except ValidationError as exc:
                messages.error(request, " ".join(exc.messages))
            except PreviewRefused as exc:
                messages.error(request, str(exc))
            except LLMError as exc:
                messages.error(request, f"{exc.code}: {exc}")
            else:
                return page
        return self._show_preview(request, preset, form, chats.first())

    def _preview_form(
        self, request: HttpRequest, chat: PreviewChat | None
    ) -> PreviewForm:
        if request.method == "POST":
            return PreviewForm(request.POST)
        return PreviewForm(initial={"text": chat.question if chat else ""})

    def _show_preview(
        self,
        request: HttpRequest,
        preset: Preset,
        form: PreviewForm,
        chat: PreviewChat | None,
    ) -> HttpResponse:
        context = {
            "row": preset,
            "form": form,
            "has_draft": find_draft(preset) is not None,
            "chat": chat,
            "entries": [_entry(item) for item in chat.items] if chat else [],
        }
        page = "_preview" if "fragment" in request.GET else "preview"
        title = _("Preview of %(row)s") % {"row": preset}
        return self.show_page(request, page, title, context)


def _entry(item: Item) -> dict[str, str]:
    """Role and text of an item, for the page."""
    match item["type"]:
        case "message":
            return {"role": item["role"], "text": text_of(item)}
        case "function_call":
            return {"role": "tool", "text": f"{item['name']}({item['arguments']})"}
    output = item["output"]
    text = output if isinstance(output, str) else json.dumps(output)
    return {"role": "tool", "text": f"→ {text}"}
