"""Views of a conversation's items and context: pins, summaries, the gauge."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from conversations.engine.loading.context_use import ContextUse, context_use
from conversations.models import Conversation
from conversations.requests.item_changes import (
    MAX_SUMMARY,
    ItemChangeSerializer,
    find_item,
)

_CHOICES = {"true": True, "false": False}  # values of the forms' buttons


@login_required
@require_POST
def change_item(
    request: HttpRequest, conversation_id: str, item_id: str
) -> HttpResponse:
    """Pin a message, or edit a summary or take it back."""
    row = _conversation(request, conversation_id)
    if (item := find_item(row, item_id)) is None:
        raise Http404
    serializer = ItemChangeSerializer(item, data=_changes(request))
    is_summary = item.type == "compaction"
    anchor = f"summary-{item_id}" if is_summary else f"turn-{item.turn_id}"
    page = reverse("conversation", args=[row.pk])
    page = f"{page}?at={item.turn_id}#{anchor}"
    if serializer.is_valid():
        serializer.save()
        return redirect(page)
    context = {
        "problems": [text for texts in serializer.errors.values() for text in texts],
        "summary": request.POST.get("summary") if is_summary else None,
        "max_length": MAX_SUMMARY,
        "page": page,
    }
    return render(request, "conversations/items/refused.html", context, status=400)


def _changes(request: HttpRequest) -> dict[str, Any]:
    form = request.POST
    changes: dict[str, Any] = {
        name: _CHOICES.get(form[name], form[name])
        for name in ("pinned", "undone")
        if name in form
    }
    return changes | ({"summary": form["summary"]} if "summary" in form else {})


@login_required
@never_cache
@require_GET
def context_gauge(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The gauge as a fragment, which replaces the one on the page."""
    visible = Conversation.objects.visible_to(request.user)
    row = get_object_or_404(visible.select_related(*_PARTS), pk=conversation_id)
    context = {"conversation": row, "context_use": read_gauge(row)}
    return render(request, "conversations/_context.html", context)


def read_gauge(row: Conversation | None) -> ContextUse | None:
    return context_use(row) if row else None


def _conversation(request: HttpRequest, conversation_id: str) -> Conversation:
    rows = Conversation.objects.of(request.user).select_related(*_PARTS)
    return get_object_or_404(rows, pk=conversation_id)


_PARTS = ("owner", "language_model__provider", "preset__language_model")
