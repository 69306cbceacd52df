"""API views of a conversation's items, and of the context that they take up."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.views import ApiView
from conversations.engine.loading.context_use import ContextUse, context_use
from conversations.models import Conversation, Item
from conversations.requests import schemas
from conversations.requests.item_changes import ItemChangeSerializer, find_item


class ContextSerializer(serializers.Serializer[Any]):
    """How much of its model's context window a conversation takes up."""

    tokens = serializers.IntegerField(help_text="Of the next prompt, without its text.")
    is_measured = serializers.BooleanField(
        help_text="Counted by the provider in the last call; otherwise estimated."
    )
    context_window = serializers.IntegerField(
        allow_null=True, help_text="Tokens of prompt and answer; null if unknown."
    )
    compacts_above = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Tokens above which earlier messages are summarised; null where that"
            " happens only after the model has refused the conversation, or never."
        ),
    )
    compaction = serializers.SerializerMethodField()

    @extend_schema_field(schemas.nullable(schemas.ITEM))
    def get_compaction(self, use: ContextUse) -> Any:
        """The `compaction` item that replaces earlier messages now."""
        return use.compaction


class ContextView(ApiView):
    limits_conversations = True
    serializer_class = ContextSerializer

    @schema.describe(responses={200: ContextSerializer, **schema.errors(404)})
    def get(self, request: Request, pk: str) -> Response:
        """How much of its model's context window the conversation takes up."""
        use = context_use(_conversation(request, pk))
        return Response(ContextSerializer(use).data)


class ItemView(ApiView):
    limits_conversations = True
    serializer_class = ItemChangeSerializer

    @schema.describe(
        responses={(200, schemas.JSON): schemas.ITEM, **schema.errors(404)}
    )
    def get(self, request: Request, pk: str, item_id: str) -> Response:
        """One item of the conversation."""
        return Response(_item(request, pk, item_id).payload)

    @schema.describe(
        request=ItemChangeSerializer,
        responses={
            (200, schemas.JSON): schemas.ITEM,
            **schema.errors(404, *schema.BODY),
        },
    )
    def patch(self, request: Request, pk: str, item_id: str) -> Response:
        """Pin a message, or edit a summary of earlier messages and take it back."""
        serializer = ItemChangeSerializer(
            _item(request, pk, item_id), data=request.data
        )
        serializer.is_valid(raise_exception=True)
        serializer.save()
        return Response(serializer.data)


def _conversation(request: Request, pk: str) -> Conversation:
    rows = Conversation.objects.of(request.user)
    return get_object_or_404(
        rows.select_related("owner", "language_model__provider", "preset"), pk=pk
    )


def _item(request: Request, pk: str, item_id: str) -> Item:
    if (item := find_item(_conversation(request, pk), item_id)) is None:
        raise Http404
    return item
