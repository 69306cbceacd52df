"""API view with which a page that has no WebSocket notices what others change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from asgiref.sync import async_to_sync
from django.db.models import Count, Max, Q
from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.authentication import LookThrottle
from conversations.api.views import ApiView, credential_of
from conversations.http import polling_presence
from conversations.models import (
    BranchChoice,
    Conversation,
    Item,
    Participant,
    Question,
    Turn,
)
from conversations.turns import waiting_messages

NEWEST = 50  # conversations whose titles count


class ChangesSerializer(serializers.Serializer[Any]):
    """Values to compare with those read before; the digests say nothing else."""

    title = serializers.CharField(allow_blank=True)
    titles = serializers.CharField(
        help_text="Digest of the user's newest conversations and their titles."
    )
    branches = serializers.CharField(
        help_text="Digest of the turns and of the branch that the user looks at."
    )
    queue = serializers.CharField(help_text="Digest of the messages that wait.")
    open_questions = serializers.ListField(
        child=serializers.CharField(), help_text="Ids of questions without an answer."
    )
    present = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="Names of up to 20 other people who have the conversation open; null"
        " where they are not known yet. Who reads this is shown to them as present.",
    )


class ChangesView(ApiView):
    limits_conversations = True
    serializer_class = ChangesSerializer
    throttle_classes = [LookThrottle]

    @schema.describe(responses={200: ChangesSerializer, **schema.errors(404)})
    def get(self, request: Request, pk: str) -> Response:
        """What differs once the conversation has changed. Read it at intervals where a
        WebSocket is not possible."""
        found = Conversation.objects.find_visible(request.user, pk)
        if found is None:
            raise Http404
        return Response(ChangesSerializer(_values(found, request)).data)


def _values(row: Conversation, request: Request) -> dict[str, Any]:
    user: Any = request.user
    visible = Conversation.objects.visible_to(user).order_by("-updated_at", "-pk")
    chosen = BranchChoice.objects.chosen(row.pk, user.pk)
    questions = Question.objects.open().filter(
        tool_call__turn__conversation=row, tool_call__turn__deleted_at=None
    )
    return {
        "title": row.title,
        "titles": _digest(sorted(visible.values_list("pk", "title")[:NEWEST])),
        "branches": _digest([chosen, _turns(row)]),
        "queue": _digest(_waiting(row)),
        "open_questions": list(questions.order_by("pk").values_list("pk", flat=True)),
        "present": _present(row, request),
    }


def _present(row: Conversation, request: Request) -> Sequence[str] | None:
    if not Participant.objects.joined().filter(conversation=row).exists():
        return []
    credential = credential_of(request)
    if credential is None:
        return None
    user: Any = request.user
    joined = row.pk if row.owner_id != user.pk else ""
    credential = replace(credential, conversation_id=joined, name=user.get_username())
    return async_to_sync(polling_presence.poll)(row.pk, credential)


def _turns(row: Conversation) -> dict[str, Any]:
    """Differs once a turn is added, deleted or restored. The database counts, because
    a page looks every few seconds at a conversation of perhaps thousands of turns."""
    return Turn.objects.filter(conversation=row).aggregate(
        shown=Count("pk", filter=Q(deleted_at=None)),
        newest=Max("created_at", filter=Q(deleted_at=None)),
        deleted=Max("deleted_at"),
    )


def _waiting(row: Conversation) -> list[Any]:
    turns: list[Turn] = waiting_messages.load(row.pk)
    items = Item.objects.filter(turn__in=[turn.pk for turn in turns])
    words = items.order_by("pk").values_list("turn_id", "payload")
    return [[(turn.pk, turn.steering) for turn in turns], list(words)]


def _digest(values: Any) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]
