"""API view of the search in a user's conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.pagination import (
    PageSerializer,
    envelope,
    read_limit,
    read_start,
)
from conversations.api.views import ApiView
from conversations.search.filters import ARCHIVED, SearchFilters
from conversations.search.results import (
    MAX_QUERY,
    MAX_START,
    PAGE,
    HighlightedText,
    find_conversations,
)


class SearchQuerySerializer(serializers.Serializer[Any]):
    query = serializers.CharField(max_length=MAX_QUERY, required=False, default="")
    start = serializers.IntegerField(default=0, min_value=0, max_value=MAX_START)
    model = serializers.CharField(max_length=200, required=False, default="")
    since = serializers.DateField(required=False)
    until = serializers.DateField(required=False)
    to = serializers.DateField(required=False)
    folder = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    tool = serializers.CharField(max_length=200, required=False, default="")
    tag = serializers.CharField(max_length=50, required=False, default="")
    archived = serializers.ChoiceField(choices=ARCHIVED, required=False, default="yes")

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "from": serializers.DateField(required=False)}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        query, start = attrs.pop("query"), attrs.pop("start")
        for old, name in (("from", "since"), ("to", "until")):
            if old in attrs:
                value = attrs.pop(old)
                attrs.setdefault(name, value)
        filters = SearchFilters(**attrs)
        if not query.strip() and not filters:
            problem = "Write words to look for, or use a filter."
            raise serializers.ValidationError({"query": problem}, code="required")
        return {"query": query, "start": start, "filters": filters}


class PieceSerializer(serializers.Serializer[Any]):
    text = serializers.CharField()
    is_match = serializers.BooleanField()


class FoundConversationSerializer(serializers.Serializer[Any]):
    conversation = serializers.CharField(source="id")
    title = serializers.SerializerMethodField()
    turn = serializers.CharField(
        source="turn_id", help_text="Of the message; empty if only the title matches."
    )
    excerpt = serializers.SerializerMethodField()
    title_pieces = PieceSerializer(
        source="title", many=True, help_text="The title, cut at the words found."
    )
    excerpt_pieces = PieceSerializer(source="excerpt", many=True)

    def get_title(self, result: Any) -> str:
        return _join(result.title)

    def get_excerpt(self, result: Any) -> str:
        return _join(result.excerpt)


class FoundConversationsSerializer(PageSerializer):
    results = FoundConversationSerializer(many=True)
    data = FoundConversationSerializer(  # type: ignore[assignment]
        many=True, help_text="The same as `results`."
    )
    has_more = serializers.BooleanField()
    is_complete = serializers.BooleanField(
        help_text="False while old messages are being indexed."
    )


class SearchView(ApiView):
    limits_conversations = True
    serializer_class = FoundConversationsSerializer

    @schema.describe(
        also_accepted=["from", "to"],  # their names before `since` and `until`
        parameters=[
            OpenApiParameter(
                "query", str, description="Words; optional with a filter."
            ),
            schema.LIMIT,
            schema.CURSOR,
            OpenApiParameter("start", int, description="Number of the first result."),
            OpenApiParameter("model", str, description="Used by any of its turns."),
            OpenApiParameter("tool", str, description="Called by any of its turns."),
            OpenApiParameter("folder", int),
            OpenApiParameter("tag", str),
            OpenApiParameter("since", OpenApiTypes.DATE, description="First day."),
            OpenApiParameter("until", OpenApiTypes.DATE, description="Last day."),
            OpenApiParameter("archived", str, enum=ARCHIVED, default="yes"),
        ],
        responses={200: FoundConversationsSerializer, **schema.errors(400)},
    )
    def get(self, request: Request) -> Response:
        """The user's conversations whose titles or messages have all these words."""
        parameters = SearchQuerySerializer(data=request.query_params)
        parameters.is_valid(raise_exception=True)
        start = read_start(request) or parameters.validated_data.pop("start")
        size = read_limit(request) or PAGE
        wanted = {**parameters.validated_data, "start": start, "size": size}
        found = find_conversations(request.user, **wanted)
        rows = FoundConversationSerializer(found.conversations, many=True).data
        page = envelope(request, rows, start, size, has_more=found.has_more)
        complete = {"has_more": found.has_more, "is_complete": found.is_complete}
        return Response({**page, **complete})


def _join(pieces: Sequence[HighlightedText]) -> str:
    return "".join(piece.text for piece in pieces)
