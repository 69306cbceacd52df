"""Filters that lists of the REST API take from the query."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.request import Request

from conversations.models import Conversation, ConversationQuerySet
from conversations.search.filters import API, ARCHIVED, SearchFilters

Row = TypeVar("Row", bound=Model)


class ConversationFilterSerializer(serializers.Serializer[Any]):
    query = serializers.CharField(max_length=200, required=False, default="")
    model = serializers.CharField(max_length=200, required=False, default="")
    tool = serializers.CharField(max_length=200, required=False, default="")
    folder = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    tag = serializers.CharField(max_length=50, required=False, default="")
    archived = serializers.ChoiceField(choices=ARCHIVED, required=False, default="yes")
    api = serializers.ChoiceField(
        choices=API,
        required=False,
        default="yes",
        help_text="Those that responses of the gateway opened: with, without, only.",
    )


def limit_conversations(
    rows: QuerySet[Conversation], request: Request
) -> QuerySet[Conversation]:
    """The conversations that the query asks for."""
    names = ConversationFilterSerializer().fields
    given = {n: v for n, v in request.query_params.items() if n in names}
    wanted = ConversationFilterSerializer(data=given)
    wanted.is_valid(raise_exception=True)
    filters = dict(wanted.validated_data)
    title = filters.pop("query")
    found = SearchFilters(**filters).limit(cast(ConversationQuerySet, rows))
    return found.filter(title__icontains=title) if title else found


def limit_by(rows: QuerySet[Row], request: Request, **choices: Any) -> QuerySet[Row]:
    """The rows with the values that the query has for some fields.

    Each field has choices; None stands for any text.
    """
    for name, known in choices.items():
        value = request.query_params.get(name)
        if value is None:
            continue
        if known is not None and value not in known.values:
            problem = f"Use {', '.join(known.values)}."
            raise serializers.ValidationError({name: problem})
        rows = rows.filter(**{name: value})
    return rows
