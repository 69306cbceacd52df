"""Views of branches: edit, move, copy, delete, restore."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from conversations import engine
from conversations.access import admission
from conversations.access.errors import TooFast
from conversations.models import BranchChoice, KeyReused, MessageRemoved, Turn
from conversations.pages.branches.edit_form import EditForm
from conversations.pages.refusals import mark_refused
from conversations.pages.views import (
    find_turn,
    open_turn,
    redirect_to_turn,
    return_to_turn,
)
from conversations.requests import branches
from conversations.turns.branches import has_question
from conversations.turns.error_texts import text_for_reader

_KEY_LENGTH = 64  # characters of the form's key


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """Ask with other words: the new turn stands beside the edited one."""
    found = find_turn(request, conversation_id, turn_id)
    if not has_question(found):
        raise Http404
    data = request.POST if request.method == "POST" else None
    form = EditForm(data, turn=found, user=request.user)
    if opened := open_turn(request, form):
        return redirect_to_turn(opened)
    status = 200 if data is None else 400
    context = {"form": form, "turn": found, "conversation": found.conversation}
    page = "conversations/branches/edit.html"
    response = render(request, page, context, status=status)
    return mark_refused(response, form.refusal) if form.refusal else response


@login_required
@require_POST
def show(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """Look at the branch that goes through this turn, and go on with it."""
    visible = Turn.objects.visible_to(request.user)
    found = get_object_or_404(visible, pk=turn_id, conversation_id=conversation_id)
    BranchChoice.objects.choose(conversation_id, request.user.pk or 0, found.pk)
    engine.announce_branches(conversation_id)
    return return_to_turn(request, found)


@login_required
@require_POST
def fork(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """Copy the conversation up to this turn into a new one."""
    found = find_turn(request, conversation_id, turn_id)
    key = request.POST.get("key", "").replace("\0", "")[:_KEY_LENGTH]
    try:
        admission.take_user_request(request.user, admission.request_size(request))
        copy = branches.fork_once(
            request.user, found, f"page:fork:{key}:{turn_id}"[:255] if key else ""
        )
    except TooFast as exc:
        context = {
            "words": text_for_reader(exc),
            "conversation": found.conversation,
        }
        page = "conversations/branches/refused.html"
        return mark_refused(render(request, page, context), exc)
    except (KeyReused, MessageRemoved) as exc:
        raise Http404 from exc
    return redirect_to_turn(copy)


@login_required
@require_POST
def delete(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """Delete the turn and all that follow it; the next page offers to undo it."""
    found = find_turn(request, conversation_id, turn_id)
    branches.delete_branch(found)
    page = reverse("conversation", args=[conversation_id])
    return redirect(f"{page}?deleted_branch={found.pk}#end")


@login_required
@require_POST
def restore(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    found = branches.find_deleted_branch(request.user, turn_id)
    if found is None or found.conversation_id != conversation_id:
        raise Http404
    if not branches.restore_branch(found):
        raise Http404
    return redirect_to_turn(found)


@login_required
@require_POST
def restore_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    found = branches.find_deleted_conversation(request.user, conversation_id)
    if found is None:
        raise Http404
    found.restore()
    return redirect("conversation", found.pk)
