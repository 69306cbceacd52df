"""API views of a person's own keys for providers. A key is never returned."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.pagination import PageSerializer, list_rows
from conversations.api.views import ApiView
from conversations.requests.fields import TextField
from llm.keys.own_keys import (
    MAX_KEY,
    OwnKeySlot,
    delete_own_key,
    find_own_key,
    own_keys_of,
    store_own_key,
)


class OwnKeySerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(source="provider.pk", read_only=True)
    provider = serializers.CharField(source="provider.name", read_only=True)
    hint = serializers.CharField(
        source="key.hint", read_only=True, allow_null=True, default=None
    )
    state = serializers.CharField(
        source="key.state", read_only=True, allow_null=True, default=None
    )
    last_used_at = serializers.DateTimeField(
        source="key.last_used_at", read_only=True, allow_null=True, default=None
    )


class OwnKeysSerializer(PageSerializer):
    results = OwnKeySerializer(many=True)
    data = OwnKeySerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class NewKeySerializer(serializers.Serializer[Any]):
    secret = TextField(max_length=MAX_KEY, write_only=True)


class OwnKeysView(ApiView):
    serializer_class = OwnKeysSerializer

    @schema.describe(
        parameters=schema.list_parameters(),
        responses={200: OwnKeysSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The providers that accept this user's own keys, and which have one."""
        rows = own_keys_of(request.user)
        shown = OwnKeySerializer(rows, many=True).data
        return list_rows(request, shown, searched=["provider"])


class OwnKeyView(ApiView):
    serializer_class = OwnKeySerializer

    @schema.describe(
        request=NewKeySerializer,
        responses={200: OwnKeySerializer, **schema.errors(400, 404)},
    )
    def put(self, request: Request, provider_id: int) -> Response:
        """Store a key for this provider, instead of an earlier one."""
        if (own := find_own_key(request.user, provider_id)) is None:
            raise Http404
        new = NewKeySerializer(data=request.data)
        new.is_valid(raise_exception=True)
        try:
            key = store_own_key(
                request.user, own.provider, new.validated_data["secret"]
            )
        except ValidationError as exc:
            raise serializers.ValidationError({"secret": exc.messages}) from exc
        return Response(OwnKeySerializer(OwnKeySlot(own.provider, key)).data)

    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, provider_id: int) -> Response:
        """Delete the key for this provider."""
        if not delete_own_key(request.user, provider_id):
            raise Http404
        return Response(status=204)
