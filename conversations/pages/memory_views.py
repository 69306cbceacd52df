"""Page on which users see and delete their memories."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from conversations.models import Turn
from conversations.models.memory import Memory, TooManyMemories, forget, undo


@login_required
@never_cache
@require_GET
def memories(request: HttpRequest) -> HttpResponse:
    rows = Memory.objects.of(request.user.pk).select_related("conversation")
    return render(request, "conversations/memories.html", {"memories": rows})


@login_required
@require_POST
def forget_memory(request: HttpRequest, pk: int) -> HttpResponse:
    if not forget(request.user.pk or 0, pk):
        raise Http404
    return redirect("memories")


@login_required
@require_POST
def undo_memory(
    request: HttpRequest, conversation_id: str, turn_id: str, pk: int
) -> HttpResponse:
    """Undo what a model stored or forgot in a turn. Harmless when it is done already:
    another tab may have been faster."""
    turns = Turn.objects.visible_to(request.user)
    turn = get_object_or_404(turns, pk=turn_id, conversation=conversation_id)
    try:
        undo(request.user.pk or 0, pk, turn.pk)
    except TooManyMemories:
        return redirect("memories")
    page = reverse("conversation", args=[conversation_id])
    return redirect(f"{page}#turn-{turn.pk}")
