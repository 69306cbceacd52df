"""API views of what belongs to one answer: its rating, and what it has cost."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.views import ApiView
from conversations.models import Rating, Turn
from conversations.requests.answer_details import details_of
from conversations.requests.ratings import RatingSerializer


class RatingView(ApiView):
    limits_conversations = True
    serializer_class = RatingSerializer

    @schema.describe(responses={200: RatingSerializer, **schema.errors(404)})
    def get(self, request: Request, pk: str) -> Response:
        """Your rating of the answer; 404 if you have not rated it."""
        rows = Rating.objects.of(request.user).filter(turn=_turn(request, pk))
        return Response(RatingSerializer(get_object_or_404(rows)).data)

    @schema.describe(
        request=RatingSerializer,
        responses={200: RatingSerializer, **schema.errors(404, *schema.BODY)},
    )
    def put(self, request: Request, pk: str) -> Response:
        """Rate the answer, or change your rating of it."""
        turn = _turn(request, pk)
        serializer = RatingSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        serializer.save(turn=turn, user=request.user)
        return Response(serializer.data)

    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, pk: str) -> Response:
        """Take your rating back."""
        rows = Rating.objects.of(request.user).filter(turn=_turn(request, pk))
        if not rows.delete()[0]:
            raise Http404
        return Response(status=204)


class DetailsSerializer(serializers.Serializer[Any]):
    """Which model gave an answer, how long it took and what it used."""

    models = serializers.ListField(child=serializers.CharField())
    calls = serializers.IntegerField(help_text="Requests to providers.")
    seconds = serializers.FloatField(
        allow_null=True, help_text="From the start of the turn to its end."
    )
    first_token_seconds = serializers.FloatField(
        allow_null=True, help_text="Until the first call's first piece."
    )
    input_tokens = serializers.IntegerField(allow_null=True)
    cached_tokens = serializers.IntegerField(allow_null=True)
    cache_write_tokens = serializers.IntegerField(allow_null=True)
    output_tokens = serializers.IntegerField(allow_null=True)
    reasoning_tokens = serializers.IntegerField(allow_null=True)
    service_tiers = serializers.ListField(
        child=serializers.CharField(),
        help_text="Tiers that the answers name; the standard tier is left out.",
    )
    web_searches = serializers.IntegerField(
        allow_null=True, help_text="Searches that the providers billed."
    )
    file_searches = serializers.IntegerField(
        allow_null=True, help_text="Searches that the providers billed."
    )
    is_estimated = serializers.BooleanField(
        help_text="Whether tokens and cost of a call are estimated: its host reported"
        " none, or was cut off."
    )
    cost = serializers.DecimalField(
        max_digits=18,
        decimal_places=12,
        allow_null=True,
        help_text="USD, as far as known; null where unknown or not shown to users.",
    )
    is_cost_complete = serializers.BooleanField(
        help_text="False if the cost of some request is unknown."
    )


class DetailsView(ApiView):
    limits_conversations = True
    serializer_class = DetailsSerializer

    @schema.describe(responses={200: DetailsSerializer, **schema.errors(404)})
    def get(self, request: Request, pk: str) -> Response:
        """The answer's model, times, tokens and cost."""
        turn = _turn(request, pk)
        return Response(DetailsSerializer(details_of([turn])[turn.pk]).data)


def _turn(request: Request, pk: str) -> Turn:
    return get_object_or_404(Turn.objects.of(request.user), pk=pk)
