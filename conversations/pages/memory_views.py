"""Page on which users see, change and delete their memories."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_POST,
)

from conversations.models import Turn
from conversations.models.memory import (
    MAX_TEXT,
    Memory,
    TooManyMemories,
    UnusableText,
    change,
    forget,
    undo,
)
from conversations.pages.confirmation import ask_before_deleting
from conversations.pages.notices.next_page_message import say_done, say_saved


@login_required
@never_cache
@require_GET
def memories(request: HttpRequest) -> HttpResponse:
    return _page(request)


@login_required
@require_POST
def change_memory(request: HttpRequest, pk: int) -> HttpResponse:
    """Save its new text. A form without one is refused, because only the person's own
    choice may delete it."""
    user_id, text = request.user.pk or 0, request.POST.get("text", "")
    get_object_or_404(Memory.objects.of(user_id), pk=pk)
    if request.POST.get("act") == "delete":  # of a page that another release rendered
        return redirect("delete-memory", pk)
    try:
        change(user_id, pk, text)
    except UnusableText:
        return _page(request, refused=pk, unsaved=text)
    say_saved(request)
    return redirect("memories")


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def delete_memory(request: HttpRequest, pk: int) -> HttpResponse:
    user_id = request.user.pk or 0
    row = get_object_or_404(Memory.objects.of(user_id), pk=pk)
    if request.method == "POST":
        forget(user_id, pk)
        say_done(request, _("The memory was deleted."))
        return redirect("memories")
    back = reverse("memories")
    return ask_before_deleting(request, _("Delete this memory?"), row.text, back)


def _page(
    request: HttpRequest, refused: int | None = None, unsaved: str = ""
) -> HttpResponse:
    """`refused` is the memory whose new text, `unsaved`, is empty or too long."""
    rows = Memory.objects.of(request.user.pk).select_related("conversation")
    context = {"memories": rows, "refused": refused, "unsaved": unsaved}
    context["longest"] = MAX_TEXT
    status = 200 if refused is None else 400
    return render(request, "conversations/memories.html", context, status=status)


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
