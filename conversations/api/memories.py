"""API views of a user's memories."""

from __future__ import annotations

from typing import Any

from django.db.models import F
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.keyset_pages import list_queryset
from conversations.api.pagination import PageSerializer
from conversations.api.views import ApiView
from conversations.models.memory import (
    MAX_TEXT,
    Memory,
    TooManyMemories,
    change,
    forget,
    restore,
)
from conversations.requests.fields import StrictSerializer


class TooManyToRestore(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = "The limit of memories is reached; delete one first."
    default_code = "too_many_memories"


class MemorySerializer(serializers.ModelSerializer[Any]):
    conversation = serializers.PrimaryKeyRelatedField[Any](
        read_only=True, allow_null=True, help_text="In which it was remembered."
    )

    turn = serializers.PrimaryKeyRelatedField[Any](
        read_only=True, allow_null=True, help_text="In which a model stored it."
    )

    class Meta:
        model = Memory
        fields = ["id", "text", "conversation", "turn", "created_at"]


class MemoriesSerializer(PageSerializer):
    results = MemorySerializer(many=True)
    data = MemorySerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class MemoriesView(ApiView):
    serializer_class = MemoriesSerializer

    @schema.describe(
        parameters=[
            *schema.list_parameters("conversation", "turn"),
            OpenApiParameter(
                "forgotten_in",
                str,
                description="Instead: what a model forgot in this turn.",
            ),
        ],
        responses={200: MemoriesSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """What models have remembered about this user, newest first."""
        rows = Memory.objects.of(request.user.pk)
        if turn := request.query_params.get("forgotten_in"):
            changed = Memory.objects.changed_in(request.user.pk, [turn])
            rows = changed.filter(deleted_at__isnull=False)
        return list_queryset(
            request,
            rows,
            MemorySerializer,
            by=F("updated_at"),
            falling=True,
            searched=["text"],
            filtered={"conversation": "conversation", "turn": "turn"},
        )


class MemoryChangeSerializer(StrictSerializer):
    text = serializers.CharField(max_length=MAX_TEXT)


class MemoryView(ApiView):
    serializer_class = MemorySerializer

    @schema.describe(
        summary="Change a memory",
        request=MemoryChangeSerializer,
        responses={200: MemorySerializer, **schema.errors(404, *schema.BODY)},
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Replace its text."""
        serializer = MemoryChangeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        if not change(request.user.pk or 0, pk, serializer.validated_data["text"]):
            raise Http404
        return Response(MemorySerializer(Memory.objects.get(pk=pk)).data)

    @schema.describe(
        summary="Forget a memory", responses={204: None, **schema.errors(404)}
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Forget one."""
        if not forget(request.user.pk or 0, pk):
            raise Http404
        return Response(status=204)


class RestoredMemoryView(ApiView):
    serializer_class = MemorySerializer

    @schema.describe(
        summary="Restore a memory",
        request=None,
        responses={200: MemorySerializer, **schema.errors(404, 409)},
    )
    def post(self, request: Request, pk: int) -> Response:
        """Undo that a model forgot it."""
        try:
            is_restored = restore(request.user.pk or 0, pk)
        except TooManyMemories as exc:
            raise TooManyToRestore from exc
        if not is_restored:
            raise Http404
        return Response(MemorySerializer(Memory.objects.get(pk=pk)).data)
