"""The *Engine* page of the admin: turns that run, wait or are stuck, and actions."""

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
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from conversations import engine
from conversations.admin.conversation_content import INSPECT, ConversationContentAdmin
from conversations.admin.live_board_actions import board_urls, may_maintain
from conversations.engine import staff_actions
from conversations.models import ToolCall, Turn
from conversations.staff.engine_status import status
from conversations.staff.live_board import live_board

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
            *board_urls(self._site, self._turns.opts),
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
        may_read = request.user.has_perm(INSPECT)
        if not (may_read or may_maintain(request)):
            raise PermissionDenied
        context = {
            **self._site.each_context(request),
            "opts": self._turns.opts,
            "title": _("Engine"),
            "may_read": may_read,  # other people's turns, calls and questions
            "status": status(),
            "board": live_board(),
            "may_act": may_act(request),
            "may_maintain": may_maintain(request),
        }
        is_fragment = "fragment" in request.GET
        page = "_board" if is_fragment else "engine"
        template = f"admin/conversations/{page}.html"
        return TemplateResponse(request, template, context)

    def act_on_turn(self, request: HttpRequest, pk: str) -> HttpResponse:
        """`action`: cancel, retry or release; done once it is `confirmed`."""
        turn = get_object_or_404(self._turns.get_queryset(request), pk=pk)
        self._check(request)
        action = ACTIONS.get(request.POST.get("action", ""))
        if action is None:
            raise Http404
        if "confirmed" not in request.POST:
            address = reverse("admin:conversations_engine_turn", args=[turn.pk])
            return ask_before(self._turns, request, turn, action, address)
        with transaction.atomic():
            if is_done := action.do(turn):
                self._turns.log_change(request, turn, action.log)
        if is_done:
            messages.success(request, action.message)
        else:
            messages.warning(
                request,
                _("Nothing was changed: the turn is not in a state for this action."),
            )
        if request.POST.get("next") == "turn":
            return redirect("admin:conversations_turn_change", turn.pk)
        return redirect("admin:conversations_engine")

    def cancel_call(self, request: HttpRequest, pk: int) -> HttpResponse:
        calls = ToolCall.objects.in_background().select_related("turn")
        call = get_object_or_404(calls, pk=pk)
        self._check(request)
        engine.cancel_call(call)
        self._turns.log_change(request, call.turn, "Cancelled a background call.")
        messages.success(request, _("The call is being stopped."))
        return redirect("admin:conversations_engine")

    def _check(self, request: HttpRequest) -> None:
        if not may_act(request):
            raise PermissionDenied


def ask_before(
    turns: Any, request: HttpRequest, turn: Turn, action: TurnAction, address: str
) -> HttpResponse:
    """The page that posts the same to the address again, confirmed."""
    context = {
        **turns.admin_site.each_context(request),
        "opts": turns.opts,
        "row": turn,
        "title": action.question,
        "warning": action.warning,
        "address": address,
        "posted": {name: request.POST.get(name, "") for name in ("action", "next")},
    }
    template = "admin/conversations/turn/confirm.html"
    return TemplateResponse(request, template, context)


def may_act(request: HttpRequest) -> bool:
    """Whether the user may stop, retry and release turns."""
    return request.user.has_perm(INSPECT) and request.user.has_perm(CHANGE)


@dataclass(frozen=True, slots=True)
class TurnAction:
    do: Callable[[Turn], bool]  # False where the turn is not in the state for it
    log: str
    message: Any
    question: Any
    warning: Any


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


CANCEL = TurnAction(
    _cancel,
    "Stopped.",
    _("The turn is being stopped."),
    _("Stop this turn?"),
    _("What the model has written so far stays. The turn ends as cancelled."),
)
ACTIONS: Mapping[str, TurnAction] = {
    "cancel": CANCEL,
    "retry": TurnAction(
        _retry,
        "Queued again.",
        _("The turn is queued again."),
        _("Queue this turn again?"),
        _(
            "Its run, if it has one, loses it, and another run continues from what is"
            " stored. A call of a tool that may run only once is not repeated."
        ),
    ),
    "release": TurnAction(
        _release,
        "Released from its run.",
        _("The turn was released; another run can claim it."),
        _("Release this turn from its run?"),
        _("Another run claims it at once and continues from what is stored."),
    ),
}
