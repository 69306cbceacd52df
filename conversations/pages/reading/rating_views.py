"""Views that store a user's rating of an answer."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from conversations.models import Rating, Turn
from conversations.models.rating import MAX_COMMENT
from conversations.pages.forms.message_form import LINE_END
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
        return redirect(_page_of(turn))
    data = {
        name: request.POST[name]
        for name in ("value", "comment")
        if name in request.POST
    }
    if (
        "comment" in data
    ):  # the text box counts the end of a line as one character, and forms send two
        data["comment"] = LINE_END.sub("\n", data["comment"])
    serializer = RatingSerializer(data=data)
    if not serializer.is_valid():
        return _refused_page(request, turn, serializer.errors)
    serializer.save(turn=turn, user=request.user)
    return redirect(_page_of(turn))


def _refused_page(request: HttpRequest, turn: Turn, errors: Any) -> HttpResponse:
    """The page with the error and the comment, which the person can change."""
    given = request.POST.get("value", "")
    context = {
        "problems": [str(problem) for found in errors.values() for problem in found],
        "value": given if given in Rating.Value.values else Rating.Value.BAD,
        "comment": request.POST.get("comment", ""),
        "longest": MAX_COMMENT,
        "page": _page_of(turn),
    }
    page = "conversations/reading/refused_rating.html"
    return render(request, page, context, status=400)


def _page_of(turn: Turn) -> str:
    page = reverse("conversation", args=[turn.conversation_id])
    return f"{page}?at={turn.pk}#turn-{turn.pk}"
