from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from conversations import engine
from conversations.admin.conversation_content import INSPECT, ConversationContentAdmin
from conversations.engine import staff_actions
from conversations.models import ToolCall, Turn
from conversations.staff.engine_status import status

CHANGE = "conversations.change_turn"


class EnginePage:
    """Status page of the engine, for all users' turns, with actions for stuck ones."""

    def __init__(self, turns: ConversationContentAdmin) -> None:
        self._turns = turns
        self._site = turns.admin_site

    def urls(self) -> list[URLPattern]:
        view = self._site.admin_view
        return [
            path("engine/", view(never_cache(self.show)), name="conversations_engine"),
            path(
                "engine/turns/<str:pk>/",
                view(require_POST(self.act_on_turn)),
                name="conversations_engine_turn",
            ),
            path(
                "engine/calls/<int:pk>/cancel/",
                view(require_POST(self.cancel_call)),
                name="conversations_engine_cancel_call",
            ),
        ]

    def show(self, request: HttpRequest) -> HttpResponse:
        if not request.user.has_perm(INSPECT):
            raise PermissionDenied
        context = {
            **self._site.each_context(request),
            "opts": self._turns.opts,
            "title": _("Engine"),
            "status": status(),
            "may_act": request.user.has_perm(CHANGE),
        }
        template = "admin/conversations/engine.html"
        return TemplateResponse(request, template, context)

    def act_on_turn(self, request: HttpRequest, pk: str) -> HttpResponse:
        """`action`: cancel, retry or release."""
        turn = get_object_or_404(self._turns.get_queryset(request), pk=pk)
        self._check(request)
        action = _ACTIONS.get(request.POST.get("action", ""))
        if action is None:
            raise Http404
        with transaction.atomic():
            if is_done := action.do(turn):
                self._turns.log_change(request, turn, action.log)
        if is_done:
            messages.success(request, action.message)
        else:
            messages.warning(request, _("Nothing was done: it is not running now."))
        return redirect("admin:conversations_engine")

    def cancel_call(self, request: HttpRequest, pk: int) -> HttpResponse:
        calls = ToolCall.objects.in_background().select_related("turn")
        call = get_object_or_404(calls, pk=pk)
        self._check(request)
        engine.cancel_call(call)
        self._turns.log_change(request, call.turn, "Cancelled a call of it.")
        messages.success(request, _("The call is being cancelled."))
        return redirect("admin:conversations_engine")

    def _check(self, request: HttpRequest) -> None:
        if not (request.user.has_perm(INSPECT) and request.user.has_perm(CHANGE)):
            raise PermissionDenied


@dataclass(frozen=True, slots=True)
class _Action:
    do: Callable[[Turn], bool]  # False where the turn is not in the state for it
    log: str
    message: Any


def _cancel(turn: Turn) -> bool:
    if turn.is_finished:
        return False
    transaction.on_commit(partial(engine.cancel, turn))
    return True


def _retry(turn: Turn) -> bool:
    return _resubmit(turn, staff_actions.retry)


def _release(turn: Turn) -> bool:
    return _resubmit(turn, staff_actions.release)


def _resubmit(turn: Turn, do: Callable[[str], bool]) -> bool:
    if not do(turn.pk):
        return False
    transaction.on_commit(partial(engine.submit, turn.pk, turn.conversation_id))
    return True


_ACTIONS: Mapping[str, _Action] = {
    "cancel": _Action(_cancel, "Stopped.", _("The turn is being stopped.")),
    "retry": _Action(_retry, "Queued again.", _("The turn is queued again.")),
    "release": _Action(
        _release, "Taken from its run.", _("Another run may take the turn up.")
    ),
}
