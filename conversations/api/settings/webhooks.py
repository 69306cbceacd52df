"""API views of a user's webhook endpoints, and of what is sent to them."""

from __future__ import annotations

from typing import Any

from django.db.models import F
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.keyset_pages import list_queryset
from conversations.api.pagination import PageSerializer
from conversations.api.views import ApiView
from conversations.forms.webhook_forms import WebhookChangeForm, WebhookForm
from conversations.models import Delivery, EventType, WebhookEndpoint
from conversations.requests.fields import (
    StrictBooleanField,
    StrictSerializer,
    TextField,
)


class WebhookSerializer(serializers.ModelSerializer[Any]):
    events = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = WebhookEndpoint
        fields = [
            *("id", "name", "url", "events", "is_enabled", "created_at"),
            *("last_success_at", "last_failure_at", "last_error", "disabled_reason"),
            "previous_secret_until",
        ]


class NewWebhookSerializer(StrictSerializer):
    name = TextField(max_length=100)
    url = TextField(max_length=2000, help_text="An https address.")
    events = serializers.ListField(
        child=TextField(max_length=40),
        required=False,
        help_text="All kinds of events, if it is left out.",
    )


class WebhookChangeSerializer(StrictSerializer):
    name = TextField(max_length=100, required=False)
    events = serializers.ListField(child=TextField(max_length=40), required=False)
    is_enabled = StrictBooleanField(required=False)


class IssuedWebhookSerializer(WebhookSerializer):
    secret = serializers.CharField(help_text="Shown only in this response.")

    class Meta(WebhookSerializer.Meta):
        fields = [*WebhookSerializer.Meta.fields, "secret"]


class WebhookListSerializer(PageSerializer):
    results = WebhookSerializer(many=True)
    data = WebhookSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class WebhooksView(ApiView):
    serializer_class = WebhookListSerializer

    @schema.describe(
        operation_id="webhooks_list",
        parameters=schema.list_parameters(),
        responses={200: WebhookListSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The user's own webhook endpoints."""
        rows = WebhookEndpoint.objects.of(request.user)
        return list_queryset(
            request, rows, WebhookSerializer, by=F("name"), searched=["name", "url"]
        )

    @schema.describe(
        request=NewWebhookSerializer,
        responses={201: IssuedWebhookSerializer, **schema.errors(*schema.BODY)},
    )
    def post(self, request: Request) -> Response:
        """Make an endpoint. The response has its secret, which is not shown again."""
        new = NewWebhookSerializer(data=request.data)
        new.is_valid(raise_exception=True)
        values = {"events": EventType.values, **new.validated_data}
        form = WebhookForm(values, owner=request.user)
        _check(form)
        return Response(_issued(*form.issue()), status=201)


class WebhookView(ApiView):
    serializer_class = WebhookSerializer

    @schema.describe(responses={200: WebhookSerializer, **schema.errors(404)})
    def get(self, request: Request, pk: int) -> Response:
        """One of the user's own webhook endpoints."""
        return Response(WebhookSerializer(_find(request, pk)).data)

    @schema.describe(
        request=WebhookChangeSerializer,
        responses={200: WebhookSerializer, **schema.errors(404, *schema.BODY)},
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change an endpoint's name or events, or switch it on or off."""
        row = _find(request, pk)
        change = WebhookChangeSerializer(data=request.data)
        change.is_valid(raise_exception=True)
        known = {name: getattr(row, name) for name in ("name", "events", "is_enabled")}
        form = WebhookChangeForm({**known, **change.validated_data}, instance=row)
        _check(form)
        return Response(WebhookSerializer(form.save()).data)

    @schema.describe(responses={204: None, **schema.errors(404)})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete an endpoint, with its log."""
        _find(request, pk).delete()
        return Response(status=204)


class SecretView(ApiView):
    serializer_class = IssuedWebhookSerializer

    @schema.describe(
        summary="Make a new secret",
        request=None,
        responses={200: IssuedWebhookSerializer, **schema.errors(404)},
    )
    def post(self, request: Request, pk: int) -> Response:
        """Replace an endpoint's secret. The response has the new one, which is not
        shown again. Until `previous_secret_until`, a day later, the old one signs, too;
        the one before that signs nothing from now on."""
        row = _find(request, pk)
        secret = row.renew_secret()
        return Response(_issued(row, secret))


# Deliveries


class DeliverySerializer(serializers.ModelSerializer[Any]):
    class Meta:
        model = Delivery
        fields = [
            *("id", "event_id", "type", "data", "state", "attempts", "created_at"),
            *("next_attempt_at", "delivered_at", "last_status", "last_error"),
        ]


class DeliveryListSerializer(PageSerializer):
    results = DeliverySerializer(many=True)
    data = DeliverySerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class DeliveriesView(ApiView):
    serializer_class = DeliveryListSerializer

    @schema.describe(
        operation_id="webhooks_deliveries_list",
        parameters=schema.list_parameters("state", "type"),
        responses={200: DeliveryListSerializer, **schema.errors(404)},
    )
    def get(self, request: Request, pk: int) -> Response:
        """What was sent to an endpoint, or waits to be, newest first."""
        return list_queryset(
            request,
            _find(request, pk).deliveries.all(),
            DeliverySerializer,
            falling=True,
            searched=["event_id", "type"],
            filtered={"state": "state", "type": "type"},
        )


class SendAgainView(ApiView):
    serializer_class = DeliverySerializer

    @schema.describe(
        request=None, responses={202: DeliverySerializer, **schema.errors(404)}
    )
    def post(self, request: Request, pk: int, delivery_id: int) -> Response:
        """Send a delivery again, with the same id and a new time."""
        row = get_object_or_404(_find(request, pk).deliveries, pk=delivery_id)
        row.send_again()
        return Response(DeliverySerializer(row).data, status=202)


def _find(request: Request, pk: int) -> WebhookEndpoint:
    return get_object_or_404(WebhookEndpoint.objects.of(request.user), pk=pk)


def _issued(row: WebhookEndpoint, secret: str) -> dict[str, Any]:
    return {**WebhookSerializer(row).data, "secret": secret}


def _check(form: Any) -> None:
    if not form.is_valid():
        raise serializers.ValidationError(
            {
                "detail" if name == "__all__" else name: [e["message"] for e in found]
                for name, found in form.errors.get_json_data().items()
            }
        )
