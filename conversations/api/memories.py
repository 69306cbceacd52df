"""API views of a user's memories."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.pagination import PageSerializer, list_rows
from conversations.api.views import ApiView
from conversations.models.memory import Memory, forget


class MemorySerializer(serializers.ModelSerializer[Any]):
    conversation = serializers.PrimaryKeyRelatedField[Any](
        read_only=True, allow_null=True, help_text="In which it was remembered."
    )

    class Meta:
        model = Memory
        fields = ["id", "text", "conversation", "created_at"]


class MemoriesSerializer(PageSerializer):
    results = MemorySerializer(many=True)
    data = MemorySerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class MemoriesView(ApiView):
    serializer_class = MemoriesSerializer

    @schema.describe(
        parameters=schema.list_parameters("conversation"),
        responses={200: MemoriesSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """What models have remembered about this user, newest first."""
        rows = Memory.objects.of(request.user.pk)
        shown = MemorySerializer(rows, many=True).data
        return list_rows(request, shown, searched=["text"], filtered=["conversation"])


class MemoryView(ApiView):
    @schema.describe(
        summary="Forget a memory", responses={204: None, **schema.errors(404)}
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Forget one."""
        if not forget(request.user.pk or 0, pk):
            raise Http404
        return Response(status=204)
