"""API view of the limits of use that apply to the caller, and of what is left."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.limits.admission import LimitLeft, find_limits_left
from conversations.access.limits.amounts import MEASURES
from conversations.api import schema
from conversations.api.authentication import token_of
from conversations.api.pagination import PageSerializer, list_rows
from conversations.api.views import ApiView
from conversations.models.access_token import NANOS_PER_DOLLAR
from conversations.models.limits.usage_limit import LimitPeriod


class LimitSerializer(serializers.Serializer[Any]):
    """Amounts of cost are USD, of size bytes."""

    applies_to = serializers.ChoiceField(
        choices=["user", "group", "token"],
        source="kind",
        help_text="Of a group: what its members share.",
    )
    period = serializers.ChoiceField(choices=LimitPeriod.values)
    measure = serializers.ChoiceField(choices=list(MEASURES))
    limit = serializers.SerializerMethodField()
    used = serializers.SerializerMethodField()
    left = serializers.SerializerMethodField()
    percent = serializers.IntegerField(help_text="Of the limit that is used.")
    warn_at = serializers.IntegerField(help_text="Percent from which to warn.")
    is_scarce = serializers.BooleanField(help_text="Whether `warn_at` is reached.")
    model = serializers.CharField(
        source="model_name", help_text="Whose limit it is; empty: of all models."
    )
    ends_at = serializers.DateTimeField(
        allow_null=True, help_text="When the period ends and the next begins."
    )

    def get_limit(self, row: LimitLeft) -> float:
        return _amount(row, row.limit)

    def get_used(self, row: LimitLeft) -> float:
        return _amount(row, row.used)

    def get_left(self, row: LimitLeft) -> float:
        return _amount(row, row.left)


class LimitsSerializer(PageSerializer):
    results = LimitSerializer(many=True)
    data = LimitSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


def _amount(row: LimitLeft, amount: int) -> float:
    return amount / NANOS_PER_DOLLAR if row.measure == "cost" else amount


class LimitsView(ApiView):
    """The limits of use, and what is left of each."""

    limits_conversations = True
    serializer_class = LimitsSerializer

    @schema.describe(
        summary="The user's limits of use",
        parameters=schema.list_parameters(),
        responses={200: LimitsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """What the limits of the user, of the user's groups and of the token leave."""
        found = find_limits_left(request.user.pk or 0, token_of(request))
        shown = LimitSerializer(found, many=True).data
        return list_rows(request, shown, searched=["measure", "period"])
