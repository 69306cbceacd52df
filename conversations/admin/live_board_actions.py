"""Actions of the live board: drain processes, and maintenance."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from conversations import engine
from conversations.access import maintenance
from conversations.models import Maintenance, ProcessStatus

MAINTAIN = "conversations.change_maintenance"


class MaintenanceForm(forms.ModelForm):
    """Changes only what differs from the values that its page has shown, so that an old
    page does not take back what others have set since."""

    class Meta:
        model = Maintenance
        fields = ["banner", "refuses_messages", "admin_is_read_only"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.show_hidden_initial = True

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        return {name: cleaned[name] for name in self.changed_data if name in cleaned}


def may_maintain(request: HttpRequest) -> bool:
    return request.user.has_perm(MAINTAIN)


def board_urls(site: admin.AdminSite, opts: Any) -> list[URLPattern]:
    actions = _BoardActions(site, opts)
    view = site.admin_view
    return [
        path(
            "engine/drain/",
            view(require_POST(actions.drain)),
            name="conversations_engine_drain",
        ),
        path(
            "engine/maintenance/",
            view(require_POST(actions.maintain)),
            name="conversations_engine_maintenance",
        ),
    ]


class _BoardActions:
    def __init__(self, site: admin.AdminSite, opts: Any) -> None:
        self._site = site
        self._opts = opts

    def drain(self, request: HttpRequest) -> HttpResponse:
        """`process`: an id, or "all"; `drains`: "yes" or "no". Asks before it does."""
        _check(request)
        name, drains = (
            request.POST.get("process", ""),
            request.POST.get("drains") == "yes",
        )
        rows = ProcessStatus.objects.filter(runs_turns=True)
        if name != "all":
            rows = rows.filter(pk=name)
        if not rows.exists():
            raise Http404
        if drains and "confirmed" not in request.POST:
            return self._ask(request, name)
        rows.update(drains=drains)
        engine.refresh_status()
        _log(request, name, "Drains." if drains else "Starts turns again.")
        text = (
            _("No more turns start there; those that run go on to their end.")
            if drains
            else _("Turns start there again.")
        )
        messages.success(request, text)
        return redirect("admin:conversations_engine")

    def _ask(self, request: HttpRequest, name: str) -> HttpResponse:
        context = {
            **self._site.each_context(request),
            "opts": self._opts,
            "title": _("Drain all processes?") if name == "all" else _("Drain it?"),
            "process": name,
        }
        template = "admin/conversations/drain.html"
        return TemplateResponse(request, template, context)

    def maintain(self, request: HttpRequest) -> HttpResponse:
        _check(request)
        with transaction.atomic():
            rows = Maintenance.objects.select_for_update().order_by("pk")
            row = rows.first() or Maintenance(pk=1)
            form = MaintenanceForm(request.POST, instance=row)
            if not form.is_valid():
                messages.error(request, str(form.errors.as_text()))
                return redirect("admin:conversations_engine")
            form.instance.changed_by = request.user
            saved = form.save()
        # Once that is committed: the engine reads the row by itself.
        maintenance.note(
            maintenance.Notice(
                saved.banner, saved.refuses_messages, saved.admin_is_read_only
            )
        )
        engine.refresh_status()
        state = "refused" if saved.refuses_messages else "accepted"
        admin_state = "read-only" if saved.admin_is_read_only else "open"
        text = f"Banner changed; messages are {state}; the admin is {admin_state}."
        _log(request, "maintenance", text)
        messages.success(
            request, _("Saved. Other processes follow within five seconds.")
        )
        return redirect("admin:conversations_engine")


def _check(request: HttpRequest) -> None:
    if not may_maintain(request):
        raise PermissionDenied


def _log(request: HttpRequest, about: str, message: str) -> None:
    LogEntry.objects.create(
        user_id=request.user.pk or 0,
        object_repr=about[:200],
        action_flag=CHANGE,
        change_message=message,
    )
