"""Views of the messages that wait while a turn runs, above the message box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST
from rest_framework.exceptions import APIException

from conversations.access import admission
from conversations.access.errors import TooFast
from conversations.models import Conversation, Turn
from conversations.pages.refusals import mark_refused
from conversations.requests.queue_changes import (
    change_message,
    move_message,
    remove_message,
    send_when,
)
from conversations.turns import waiting_messages
from conversations.turns.error_texts import text_for_reader
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

_EMPTY = _("Write a message first, or remove it from the queue.")
_TOO_LONG = _("The message is too long; send it in parts.")


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    turn: Turn
    text: str
    files: int
    is_mine: bool  # only its sender may change it
    is_first: bool
    is_last: bool

    @property
    def steers(self) -> bool:
        return bool(self.turn.steering)

    @property
    def is_taken(self) -> bool:
        """Whether it is being added to the running turn, and can no longer change."""
        return self.turn.steering == Turn.Steering.TAKEN

    @property
    def may_change(self) -> bool:
        return self.is_mine and not self.is_taken


class QueueChangeRefused(Exception):
    """A change that was not made; the text says why and what to do."""


@login_required
@never_cache
@require_GET
def waiting(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The waiting messages as a fragment, which replaces the one on the page."""
    rows = Conversation.objects.visible_to(request.user)
    row = get_object_or_404(rows, pk=conversation_id)
    context = {**queue_context(row, request.user), "conversation": row}
    return render(request, "conversations/queue/_queue.html", context)


@login_required
@require_POST
def change_waiting(
    request: HttpRequest, conversation_id: str, turn_id: str
) -> HttpResponse:
    """Change, move, remove or send a waiting message; the button says what."""
    rows = Turn.objects.written_by(request.user).select_related("conversation")
    turn = get_object_or_404(rows, pk=turn_id, conversation_id=conversation_id)
    try:
        _act(request, turn)
    except (APIException, QueueChangeRefused) as exc:
        problem = exc.detail if isinstance(exc, APIException) else str(exc)
        return _refused_page(request, turn, problem)
    except TooFast as exc:
        page = _refused_page(request, turn, text_for_reader(exc))
        return mark_refused(page, exc)
    return redirect(f"{reverse('conversation', args=[conversation_id])}#end")


def _refused_page(request: HttpRequest, turn: Turn, problem: Any) -> HttpResponse:
    context = {
        **queue_context(turn.conversation, request.user),
        "conversation": turn.conversation,
        "problem": problem,
        "unsent": request.POST.get("text", ""),
    }
    return render(request, "conversations/queue/refused.html", context, status=409)


def _act(request: HttpRequest, turn: Turn) -> None:
    match act := request.POST.get("act", ""):
        case "change":
            admission.take_user_request(request.user, admission.request_size(request))
            text = request.POST.get("text", "")
            change_message(turn, _with_text(turn, text), request.user)
        case "up":
            move_message(turn, -1)
        case "down":
            move_message(turn, 1)
        case "remove":
            remove_message(turn)
        case "queue" | "steer" | "interrupt":
            send_when(turn, act)
        case _:
            raise QueueChangeRefused(_("Choose what to do with the message."))


def _with_text(turn: Turn, text: str) -> Sequence[ItemPayload]:
    """The turn's messages with this text instead of theirs; files stay."""
    text = text.replace("\r\n", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
    items = [row.payload for row in turn.items.order_by("position")]
    if len(text.encode()) > settings.MAX_INPUT_SIZE:
        raise QueueChangeRefused(_TOO_LONG)
    files = [part for item in items for part in _files_of(item)]
    if not text.strip() and not files:
        raise QueueChangeRefused(_EMPTY)
    words = [{"type": "input_text", "text": text}] if text.strip() else []
    return [{**items[0], "content": [*files, *words]}] if items else []


def _files_of(item: ItemPayload) -> list[ItemPayload]:
    parts = item.get("content")
    kinds = ("input_image", "input_file")
    return (
        [p for p in parts if p.get("type") in kinds] if isinstance(parts, list) else []
    )


def queue_context(conversation: Conversation | None, user: Any) -> dict[str, Any]:
    """Template context: the first waiting messages, the ids of all, and how many are
    not listed."""
    owner_id = conversation.owner_id if conversation else None
    turns = waiting_messages.load(conversation.pk) if conversation else []
    listed = turns[: waiting_messages.MAX_SHOWN]
    return {
        "queue": _messages(listed, owner_id, user.pk),
        "waiting_ids": {turn.pk for turn in turns},
        "unlisted": len(turns) - len(listed),
    }


def _messages(
    turns: Sequence[Turn], owner_id: int | None, user_id: int
) -> list[QueuedMessage]:
    rows = Turn.objects.filter(pk__in=[turn.pk for turn in turns])
    items = {row.pk: list(row.items.all()) for row in rows.prefetch_related("items")}
    return [
        QueuedMessage(
            turn,
            "\n\n".join(
                filter(None, (text_of(i.payload) for i in items.get(turn.pk, ())))
            ),
            sum(len(_files_of(i.payload)) for i in items.get(turn.pk, ())),
            is_mine=_author_id(turn, owner_id) == user_id,
            is_first=number == 0,
            is_last=number == len(turns) - 1,
        )
        for number, turn in enumerate(turns)
    ]


def _author_id(turn: Turn, owner_id: int | None) -> int | None:
    is_owners = turn.author_id is None and not turn.author_name
    return owner_id if is_owners else turn.author_id
