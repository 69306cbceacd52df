"""Views that store a user's rating of an answer."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from conversations.models import Rating, Turn
from conversations.requests.ratings import RatingSerializer


@login_required
@require_POST
def rate(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """Store the rating, or take it back where `value` is empty."""
    turn = get_object_or_404(
        Turn.objects.of(request.user), pk=turn_id, conversation_id=conversation_id
    )
    if not request.POST.get("value"):
        Rating.objects.of(request.user).filter(turn=turn).delete()
        return _back_to(turn)
    data = {
        name: request.POST[name]
        for name in ("value", "comment")
        if name in request.POST
    }
    serializer = RatingSerializer(data=data)
    if not serializer.is_valid():
        return render(request, "400.html", status=400)
    serializer.save(turn=turn, user=request.user)
    return _back_to(turn)


def _back_to(turn: Turn) -> HttpResponse:
    page = reverse("conversation", args=[turn.conversation_id])
    return redirect(f"{page}?at={turn.pk}#turn-{turn.pk}")
