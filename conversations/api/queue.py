"""API views of the messages that wait while a turn runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.webhooks.limit_events import notes_refusals
from conversations.api import schema, views
from conversations.api.authentication import token_of
from conversations.api.pagination import PageSerializer, list_rows
from conversations.api.serializers import TurnDetailSerializer, TurnSerializer
from conversations.api.views import ApiView
from conversations.models import Conversation, Turn
from conversations.requests.fields import InputField, StrictSerializer
from conversations.requests.queue_changes import (
    change_message,
    remove_message,
    reorder_messages,
    send_when,
)
from conversations.turns import waiting_messages

MAX_ORDER = 1000  # ids in a request


class QueueSerializer(PageSerializer):
    results = TurnSerializer(many=True)
    data = TurnSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class OrderSerializer(StrictSerializer):
    order = serializers.ListField(
        child=serializers.CharField(max_length=64),
        allow_empty=False,
        max_length=MAX_ORDER,
        help_text="The ids of all waiting turns, in the order to send them.",
    )


class TurnChangeSerializer(StrictSerializer):
    """What changes about a message that waits."""

    input = InputField(
        required=False, help_text="A string, or {role, content}s of the user."
    )
    when = serializers.ChoiceField(choices=waiting_messages.WHENS, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError("Send 'input', 'when', or both.")
        return attrs


class QueueView(ApiView):
    limits_conversations = True
    serializer_class = QueueSerializer

    @schema.describe(
        parameters=[schema.LIMIT, schema.CURSOR],
        responses={200: QueueSerializer, **schema.errors(404)},
    )
    def get(self, request: Request, pk: str) -> Response:
        """The messages that wait for the running turn, in the order in which they will
        be sent."""
        return self._response(self._find(Conversation.objects.find_visible))

    @schema.describe(
        request=OrderSerializer,
        responses={200: QueueSerializer, **schema.errors(404, 409, *schema.BODY)},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Send the waiting messages in another order."""
        found = self._find(Conversation.objects.find_writable)
        serializer = OrderSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        reorder_messages(found.pk, serializer.validated_data["order"])
        return self._response(found)

    def _response(self, conversation: Conversation) -> Response:
        ids = [turn.pk for turn in waiting_messages.load(conversation.pk)]
        rows = Turn.objects.filter(pk__in=ids).order_by("created_at", "id")
        found = rows.select_related("language_model__provider", "conversation")
        serializer = TurnSerializer(
            found.prefetch_related("items", "tool_calls"),
            many=True,
            context=self.get_serializer_context(),
        )
        return list_rows(self.request, serializer.data)

    def _find(self, find: Callable[[Any, str], Conversation | None]) -> Conversation:
        found = find(self.request.user, self.kwargs["pk"])
        if found is None:
            raise Http404
        return found


class ChangeableTurnView(views.TurnView):
    """A turn; while its message waits, it can be changed and removed."""

    limits_conversations = True

    def get_queryset(self) -> QuerySet[Turn]:
        return super().get_queryset().select_related("conversation")

    @schema.describe(
        request=TurnChangeSerializer,
        responses={200: TurnDetailSerializer, **schema.errors(404, 409, *schema.BODY)},
    )
    def patch(self, request: Request, pk: str) -> Response:
        """Change a message that waits, or when it is sent."""
        turn = self._turn()
        serializer = TurnChangeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        self._change(turn, serializer.validated_data)
        return Response(TurnDetailSerializer(self.get_queryset().get(pk=pk)).data)

    @notes_refusals
    @transaction.atomic  # both or neither
    def _change(self, turn: Turn, changes: Mapping[str, Any]) -> None:
        if items := changes.get("input"):
            change_message(turn, items, self.request.user, token_of(self.request))
        if when := changes.get("when"):
            send_when(turn, when)

    @schema.describe(request=None, responses={204: None, **schema.errors(404, 409)})
    def delete(self, request: Request, pk: str) -> Response:
        """Remove a message that waits."""
        remove_message(self._turn())
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _turn(self) -> Turn:
        rows = Turn.objects.written_by(self.request.user).select_related("conversation")
        found: Turn = get_object_or_404(rows, pk=self.kwargs["pk"])
        return found
