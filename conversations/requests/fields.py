"""Serializer fields of requests: models, presets, input and options.

REST and the WebSocket of pages use the same, so both answer the same errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from conversations.access.declared_tools import check_declared_kinds
from conversations.input.checks import InputError, short_repr
from conversations.input.items import items_of, options_of
from conversations.models.preset import Preset
from conversations.requests import schemas
from conversations.requests.errors import InvalidInput
from llm import router
from llm.errors import LLMError
from llm.models import LanguageModel
from llm.pricing.caller import join_tags
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from tools.models import Tool


class StrictSerializer(serializers.Serializer[Any]):
    # No docstring: the document of the API would have it for each serializer.
    # Refuses by name what it does not know, so that no option is lost in silence.

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            for name in data:
                if name not in self.fields:
                    known = ", ".join(self.fields)
                    raise serializers.ValidationError(
                        {name[:100]: f"Unknown; use {known}."},
                        code="unknown_parameter",
                    )
        return super().to_internal_value(data)


class TextField(serializers.CharField):
    """A text field that refuses numbers, which DRF's `CharField` accepts."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    """A field that refuses `"yes"` and `1`, which DRF's `BooleanField` accepts."""

    default_error_messages = {"invalid": "Must be true or false."}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


@extend_schema_field(schemas.MODEL_NAME)
class ResolvedModelField(serializers.Field[Any, Any, Any, Any]):
    """A model with its route, for what is sent to it at once."""

    default_error_messages = {"invalid": "Not a valid string."}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            self.fail("invalid")
        return resolve_model(data, self.context["user"])


class ModelField(ResolvedModelField):
    """A model that the user may use, by any of its names; null is the default model."""

    def to_internal_value(self, data: Any) -> LanguageModel:
        model: LanguageModel = super().to_internal_value(data).model
        return model

    def to_representation(self, value: LanguageModel) -> str:
        return value.public_name


@extend_schema_field(schemas.PRESET_NAME)
class PresetField(serializers.Field[Any, Any, Any, Any]):
    """A preset that the user may use, by its name; null for none."""

    default_error_messages = {
        "invalid": "Not a valid string.",
        "unknown": "There is no preset {name}.",
    }

    def to_internal_value(self, data: Any) -> Preset:
        if not isinstance(data, str):
            self.fail("invalid")
        rows = Preset.objects.available_to(self.context["user"]).filter(name=data)
        found = rows.select_related("language_model__provider").first()
        if found is None:
            self.fail("unknown", name=short_repr(data))
        return found

    def to_representation(self, value: Preset) -> str:
        return value.name


class _CheckedField(serializers.JSONField):
    """A JSON value as `check` returns it. `check` raises InputError."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            return self.check(data)
        except InputError as exc:
            raise InvalidInput(exc) from exc

    def check(self, data: Any) -> Any:
        raise NotImplementedError


@extend_schema_field(schemas.INPUT)
class InputField(_CheckedField):
    def check(self, data: Any) -> list[ItemPayload]:
        return items_of(data, max_size=settings.MAX_INPUT_SIZE)


@extend_schema_field(schemas.TAGS)
class CallTagsField(_CheckedField):
    """Tags of model calls, as their rows have them."""

    def check(self, data: Any) -> str:
        try:
            return join_tags(data if isinstance(data, list) else [data])
        except (TypeError, ValueError) as exc:
            raise InputError("tags", f"{exc}.") from exc


@extend_schema_field(schemas.OPTIONS)
class OptionsField(_CheckedField):
    def check(self, data: Any) -> dict[str, Any]:
        options = options_of(data)
        check_declared_kinds(options, self.context["user"], self.context.get("token"))
        for option in ("disabled_tools", "server_tools"):
            if names := options.get(option):
                self._check_tools(names, f"options.{option}")
        return options

    def _check_tools(self, names: list[str], where: str) -> None:
        """Refuse unknown names: a misspelled one would leave a tool enabled."""
        rows = Tool.objects.visible_to(self.context["user"]).filter(name__in=names)
        found, token = (
            set(rows.values_list("name", flat=True)),
            self.context.get("token"),
        )
        if token is not None:
            found = {name for name in found if token.may_use_tool(name)}
        if unknown := set(names) - found:
            raise InputError(
                where,
                f"no tool is named {short_repr(min(unknown))}.",
                code="unknown_tool",
            )


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model's row and the route to it."""

    model: LanguageModel
    route: Route


def resolve_model(name: str | None, user: Any) -> ResolvedModel:
    """Find a model by name. Raises LLMError if `user` cannot use it."""
    try:
        model = router.find_model(name, user=user)
        return ResolvedModel(model, router.route_of(model, user=user))
    except LLMError as exc:
        exc.param = exc.param or "model"
        raise
