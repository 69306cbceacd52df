"""API views of the participants of a conversation, and of a user's invitations."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Case, F, Value, When
from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.participation import (
    MAX_NAME,
    invite,
    removable_by,
    shown_participants,
)
from conversations.api import schema
from conversations.api.keyset_pages import list_queryset
from conversations.api.pagination import PageSerializer
from conversations.api.views import ApiView
from conversations.models import Conversation, Participant
from conversations.models.participant import Role
from conversations.requests.fields import StrictSerializer, TextField
from conversations.requests.participant_removal import remove_participant


class ParticipantSerializer(serializers.ModelSerializer[Any]):
    class Meta:
        model = Participant
        fields = ["id", "name", "role", "created_at", "accepted_at"]
        read_only_fields = fields


class ParticipantsSerializer(PageSerializer):
    results = ParticipantSerializer(many=True)
    data = ParticipantSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class NewParticipantSerializer(StrictSerializer):
    name = TextField(max_length=MAX_NAME, help_text="The person's exact user name.")
    role = serializers.ChoiceField(choices=Role.choices, default=Role.VIEWER)


class InvitationSerializer(serializers.ModelSerializer[Any]):
    conversation = serializers.CharField(source="conversation_id", read_only=True)
    title = serializers.SerializerMethodField(
        help_text="The conversation's title; empty until you accept."
    )
    invited_by = serializers.CharField(
        source="conversation.owner.username", read_only=True
    )

    class Meta:
        model = Participant
        fields = [
            *("id", "conversation", "title", "invited_by", "role"),
            *("created_at", "accepted_at"),
        ]
        read_only_fields = fields

    def get_title(self, row: Participant) -> str:
        return row.conversation.title if row.accepted_at else ""


class InvitationsSerializer(PageSerializer):
    results = InvitationSerializer(many=True)
    data = InvitationSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class ParticipantsView(ApiView):
    serializer_class = ParticipantsSerializer

    @schema.describe(
        summary="The participants of a conversation",
        parameters=schema.list_parameters("role"),
        responses={200: ParticipantsSerializer, **schema.errors(404)},
    )
    def get(self, request: Request, pk: str) -> Response:
        """Who is invited; for participants only those who have accepted."""
        visible = Conversation.objects.visible_to(request.user)
        row = get_object_or_404(visible, pk=pk)
        people = shown_participants(row, request.user)
        return list_queryset(
            request,
            people,
            ParticipantSerializer,
            by=F("created_at"),
            searched=["name"],
            filtered={"role": "role"},
        )

    @schema.describe(
        request=NewParticipantSerializer,
        responses={201: ParticipantSerializer, **schema.errors(404, *schema.BODY)},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Invite a person, or change the role of one. The answer does not tell whether
        there is such a person."""
        own = Conversation.objects.of(request.user).select_related("owner")
        row = get_object_or_404(own, pk=pk)
        new = NewParticipantSerializer(data=request.data)
        new.is_valid(raise_exception=True)
        try:
            participant = invite(row, **new.validated_data)
        except ValidationError as exc:
            detail = exc.message_dict if hasattr(exc, "error_dict") else exc.messages
            raise serializers.ValidationError(detail) from exc
        return Response(ParticipantSerializer(participant).data, status=201)


class ParticipantView(ApiView):
    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, pk: int) -> Response:
        """Remove a participant of your conversation, or leave or decline yourself."""
        row = removable_by(request.user).filter(pk=pk).first() if pk < 2**63 else None
        if row is None:
            raise Http404
        remove_participant(row)
        return Response(status=204)


class InvitationsView(ApiView):
    serializer_class = InvitationsSerializer

    @schema.describe(
        parameters=schema.list_parameters("role"),
        responses={200: InvitationsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """Conversations of others to which the user is invited, or in which the user
        takes part."""
        joined = Participant.objects.joined().filter(user=request.user.pk)
        rows = joined | Participant.objects.open_invitations(request.user)
        rows = rows.select_related("conversation__owner")
        # The title of an invitation is secret until it is accepted.
        title = Case(
            When(accepted_at=None, then=Value("")), default="conversation__title"
        )
        return list_queryset(
            request,
            rows.annotate(shown_title=title),
            InvitationSerializer,
            by=F("created_at"),
            searched=["shown_title", "conversation__owner__username"],
            filtered={"role": "role"},
        )


class AcceptView(ApiView):
    serializer_class = InvitationSerializer

    @schema.describe(
        request=None, responses={200: InvitationSerializer, **schema.errors(404)}
    )
    def post(self, request: Request, pk: int) -> Response:
        """Accept an invitation."""
        rows = Participant.objects.open_invitations(request.user)
        row = rows.filter(pk=pk).first() if pk < 2**63 else None
        if row is None:
            raise Http404
        row.accept()
        accepted = Participant.objects.select_related("conversation__owner").get(pk=pk)
        return Response(InvitationSerializer(accepted).data)
