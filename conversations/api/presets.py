"""API view of the presets that a user may choose."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api import schema
from conversations.api.pagination import PageSerializer, list_rows
from conversations.api.views import ApiView
from conversations.models.preset import Preset


class PresetSerializer(serializers.ModelSerializer[Any]):
    label = serializers.CharField(source="__str__", read_only=True)  # type: ignore[assignment]
    default = serializers.BooleanField(source="is_default", read_only=True)
    model = serializers.SerializerMethodField()
    models = serializers.SerializerMethodField(
        help_text="The models that its conversations may use; empty for all."
    )

    class Meta:
        model = Preset
        fields = ["name", "label", "description", "default", "model", "models"]

    def get_model(self, preset: Preset) -> str | None:
        model = preset.language_model
        return model.public_name if model else None

    def get_models(self, preset: Preset) -> list[str]:
        return [model.public_name for model in preset.allowed_models.all()]


class PresetsSerializer(PageSerializer):
    results = PresetSerializer(many=True)
    data = PresetSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class PresetsView(ApiView):
    limits_conversations = True
    serializer_class = PresetsSerializer

    @schema.describe(
        parameters=schema.list_parameters("model"),
        responses={200: PresetsSerializer, **schema.errors()},
    )
    def get(self, request: Request) -> Response:
        """The presets that this user may begin a conversation with."""
        rows = Preset.objects.available_to(request.user)
        rows = rows.select_related("language_model__provider")
        rows = rows.prefetch_related("allowed_models__provider")
        shown = PresetSerializer(rows, many=True).data
        names = ["name", "label", "description"]
        return list_rows(request, shown, searched=names, filtered=["model"])
