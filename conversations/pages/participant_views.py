"""Pages on which people are invited to a conversation, and answer invitations."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from conversations.access import admission
from conversations.access.errors import TooFast
from conversations.access.participation import (
    MAX_NAME,
    invite,
    removable_by,
    shown_participants,
)
from conversations.models import Conversation, Participant
from conversations.models.participant import Role
from conversations.pages.notices.next_page_message import say_done
from conversations.pages.refusals import mark_refused
from conversations.requests.participant_removal import remove_participant
from conversations.turns.error_texts import text_for_reader


class InviteForm(forms.Form):
    name = forms.CharField(
        label=_("User name"),
        max_length=MAX_NAME,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    role = forms.ChoiceField(
        label=pgettext_lazy("role of a person", "May"), choices=Role.choices
    )


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def people(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Who takes part; the owner also invites here."""
    visible = Conversation.objects.visible_to(request.user).select_related("owner")
    row = get_object_or_404(visible, pk=conversation_id)
    if request.method != "POST":
        return _page(request, row, InviteForm())
    if row.owner_id != request.user.pk:
        raise Http404
    form = InviteForm(request.POST)
    try:
        admission.take_user_request(request.user, admission.request_size(request))
    except TooFast as exc:
        form.add_error(None, text_for_reader(exc))
        return mark_refused(_page(request, row, form), exc)
    if form.is_valid():
        try:
            invite(row, form.cleaned_data["name"], form.cleaned_data["role"])
            return redirect("people", row.pk)
        except ValidationError as exc:
            form.add_error(None, exc)
    return _page(request, row, form, status=400)


@login_required
@require_POST
def remove_person(request: HttpRequest, pk: int) -> HttpResponse:
    """The owner removes a participant, or a participant leaves or declines."""
    rows = removable_by(request.user).select_related("conversation")
    row = get_object_or_404(rows, pk=pk)
    is_owner = row.conversation.owner_id == request.user.pk
    text = _removal_text(row, is_owner=is_owner)
    remove_participant(row)
    say_done(request, text)
    if is_owner:
        return redirect("people", row.conversation_id)
    return redirect("chat")


def _removal_text(row: Participant, *, is_owner: bool) -> str:
    if not is_owner:
        left = gettext("You have left the conversation.")
        return left if row.accepted_at else gettext("The invitation was declined.")
    text = (
        gettext("%(name)s no longer takes part.")
        if row.accepted_at
        else gettext("The invitation of %(name)s was withdrawn.")
    )
    return text % {"name": row.name}


@login_required
@never_cache
@require_safe
def invitations(request: HttpRequest) -> HttpResponse:
    rows = Participant.objects.open_invitations(request.user)
    rows = rows.select_related("conversation", "invited_by")
    context = {"invitations": rows}
    return render(request, "conversations/sharing/invitations.html", context)


@login_required
@require_POST
def accept_invitation(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(Participant.objects.open_invitations(request.user), pk=pk)
    row.accept()
    return redirect("conversation", row.conversation_id)


def _page(
    request: HttpRequest, row: Conversation, form: InviteForm, status: int = 200
) -> HttpResponse:
    context: dict[str, Any] = {
        "conversation": row,
        "form": form,
        "is_owner": row.owner_id == request.user.pk,
        "participants": shown_participants(row, request.user),
    }
    name = "conversations/sharing/people.html"
    return render(request, name, context, status=status)
