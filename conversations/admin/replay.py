"""Admin of replays: turns that staff run again with something changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from conversations.admin.conversation_content import INSPECT
from conversations.models import Replay, ReplayedTurn, ReplaySet, Turn
from conversations.staff.replay_report import MAX_ROWS, compare, progress_of
from llm.admin.bases import ReadOnlyAdmin
from llm.forms.fields import OneFullNameField
from llm.models import LanguageModel
from tools.models import Tool, ToolVersion

ADD, VIEW = "conversations.add_replay", "conversations.view_replay"
RUN_TOOLS = "conversations.run_live_tools"


def may_replay(request: HttpRequest) -> bool:
    return request.user.has_perm(INSPECT) and request.user.has_perm(ADD)


class ReplayForm(forms.ModelForm):
    live_tools = forms.CharField(
        required=False,
        max_length=1000,
        label=_("Also run"),
        help_text=_("Names of tools, with commas. They run whatever they change."),
    )

    class Meta:
        model = Replay
        fields = [
            "name",
            "language_model",
            "instructions",
            "tool_version",
            "budget",
            "is_live",
        ]
        field_classes = {"language_model": OneFullNameField}
        widgets = {"instructions": forms.Textarea({"rows": 5, "cols": 70})}

    def __init__(self, *args: Any, may_run_tools: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        models = LanguageModel.objects.usable().select_related("provider")
        versions = ToolVersion.objects.select_related("tool")
        own: dict[str, Any] = self.fields
        own["language_model"].queryset = models.order_by("name", "provider__name")
        newest_first = versions.order_by("tool__name", "-number")
        own["tool_version"].queryset = newest_first
        if not may_run_tools:
            del self.fields["is_live"], self.fields["live_tools"]

    def clean_live_tools(self) -> list[str]:
        text: str = self.cleaned_data["live_tools"]
        names = [name.strip() for name in text.split(",") if name.strip()]
        if names and not self.cleaned_data.get("is_live"):
            raise ValidationError(_("No tool runs unless you tick “Run tools” above."))
        known = set(Tool.objects.filter(name__in=names).values_list("name", flat=True))
        if unknown := [name for name in names if name not in known]:
            raise ValidationError(
                _("There is no tool of this name: %(names)s."),
                params={"names": ", ".join(unknown)},
            )
        return names


class SavedSetForm(forms.ModelForm):
    """The name under which the turns are saved."""

    prefix = "set"

    class Meta:
        model = ReplaySet
        fields = ["name"]
        labels = {"name": _("Name of the set")}  # the page has another name above


@admin.register(Replay)
class ReplayAdmin(ReadOnlyAdmin):
    list_display = ["name", "state", "language_model", "created_by", "created_at"]
    list_filter = ["state", "created_at"]
    list_select_related = ["language_model__provider", "created_by"]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """It shows what people have said."""
        return request.user.has_perm(INSPECT) and request.user.has_perm(VIEW)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("new/", view(self.new_view), name="conversations_replay_new"),
            path(
                "<int:pk>/cancel/",
                view(require_POST(self.cancel_view)),
                name="conversations_replay_cancel",
            ),
            path(
                "<int:pk>/turns/<int:row>/",
                view(never_cache(self.turn_view)),
                name="conversations_replay_turn",
            ),
            *super().get_urls(),
        ]

    def new_view(self, request: HttpRequest) -> HttpResponse:
        """`turn`: ids of turns, or `again`: a replay with the same turns, or `set`: a
        saved set."""
        if not may_replay(request):
            raise PermissionDenied
        given = request.POST if request.method == "POST" else request.GET
        turns = _find_turns(_chosen_ids(given))
        if not turns:
            messages.warning(request, _("Choose turns that are over."))
            return redirect("admin:conversations_turn_changelist")
        saving = SavedSetForm(request.POST if "_save" in request.POST else None)
        if saving.is_bound and saving.is_valid():
            return self._save_set(request, saving, turns)
        form = ReplayForm(
            request.POST if "name" in request.POST else None,
            initial={"name": _name_of(turns)},
            may_run_tools=request.user.has_perm(RUN_TOOLS),
        )
        if form.is_bound and form.is_valid():
            created = _create(form, turns, request.user)
            self.log_addition(request, created, f"Replay of {len(turns)} turns.")
            return redirect("admin:conversations_replay_change", created.pk)
        context = {"form": form, "saving": saving, "turns": turns}
        return self._page(request, "new", _("Replay turns"), context)

    def _save_set(
        self, request: HttpRequest, form: SavedSetForm, turns: Sequence[Turn]
    ) -> HttpResponse:
        with transaction.atomic():
            saved: ReplaySet = form.save(commit=False)
            saved.created_by = request.user  # type: ignore[assignment]
            saved.save()
            saved.turns.set(turns)
        self.log_addition(request, saved, f"Saved {len(turns)} turns.")
        text = _("%(count)d turns are saved as “%(name)s”.")
        params = {"count": len(turns), "name": saved}
        messages.success(request, text % params)
        answer = redirect("admin:conversations_replay_new")
        answer["Location"] += f"?set={saved.pk}"
        return answer

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        change: Replay | None = self.get_object(request, object_id)
        if change is None:
            raise Http404
        rows = change.turns.defer("items").order_by("pk")[:MAX_ROWS]
        context = {
            "row": change,
            "progress": progress_of(change),
            "rows": rows,
            "is_over": change.is_finished,
            "may_replay": may_replay(request),
        }
        page = "_progress" if "fragment" in request.GET else "progress"
        return self._page(request, page, str(change), context)

    def turn_view(self, request: HttpRequest, pk: int, row: int) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = ReplayedTurn.objects.select_related("turn", "replay")
        found = get_object_or_404(rows, pk=row, replay=pk)
        self.log_change(request, found.replay, f"Read {found.turn_id}.")
        context = {"row": found.replay, "found": found, "both": compare(found)}
        return self._page(request, "turn", found.turn_id, context)

    def cancel_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        if not may_replay(request):
            raise PermissionDenied
        open_ones = Replay.objects.filter(pk=pk, state__in=Replay.UNFINISHED)
        if open_ones.update(cancel_requested=True):
            self.log_change(request, Replay.objects.get(pk=pk), "Cancelled.")
            messages.success(request, _("Stopping; the turn that runs is interrupted."))
        return redirect("admin:conversations_replay_change", pk)

    def _page(
        self, request: HttpRequest, page: str, title: Any, context: dict[str, Any]
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            **context,
        }
        template = f"admin/conversations/replay/{page}.html"
        return TemplateResponse(request, template, context)


def _chosen_ids(given: QueryDict) -> list[str]:
    if (again := _key(given.get("again", ""))) is not None:
        rows = ReplayedTurn.objects.filter(replay=again)
        return list(rows.values_list("turn", flat=True)[:MAX_ROWS])
    if (saved := _key(given.get("set", ""))) is not None:
        links = ReplaySet.turns.through.objects.filter(replayset=saved)
        return list(links.values_list("turn", flat=True)[:MAX_ROWS])
    return given.getlist("turn")


def _key(text: str) -> int | None:
    return int(text[:18]) if text.isascii() and text.isdecimal() else None


def _find_turns(ids: Sequence[str]) -> list[Turn]:
    """Turns that are over, at most `MAX_ROWS`."""
    rows: QuerySet[Turn] = Turn.objects.exclude(status__in=Turn.UNFINISHED)
    rows = rows.filter(pk__in=ids[:MAX_ROWS], deleted_at=None)
    return list(rows.only("pk", "created_at").order_by("created_at", "pk"))


def _name_of(turns: Sequence[Turn]) -> str:
    return ngettext("Replay of %d turn", "Replay of %d turns", len(turns)) % len(turns)


@transaction.atomic
def _create(form: ReplayForm, turns: Sequence[Turn], user: Any) -> Replay:
    """At once: a process that found the replay without its turns would end it."""
    created: Replay = form.save(commit=False)
    created.created_by = user
    created.live_tools = form.cleaned_data.get("live_tools", [])
    created.save()
    ReplayedTurn.objects.bulk_create(
        ReplayedTurn(replay=created, turn=turn) for turn in turns
    )
    return created
