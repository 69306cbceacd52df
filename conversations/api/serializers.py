"""Serializers of conversations, turns, files, calls and models."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from conversations.api import schema
from conversations.api.pagination import PageSerializer
from conversations.models import (
    Attachment,
    Conversation,
    Item,
    TitleSource,
    ToolCall,
    Turn,
)
from conversations.models.preset import Preset
from conversations.requests import schemas
from conversations.requests.bulk import FolderField, TagsField, find_tags
from conversations.requests.fields import (
    ModelField,
    OptionsField,
    PresetField,
    StrictBooleanField,
    StrictSerializer,
    TextField,
)
from conversations.requests.model_facts import find_prices
from llm.capabilities import LIMITS
from llm.models import LanguageModel, ModelCall
from llm.router import capabilities
from llm.wire.response_builder import ResponseBuilder


@extend_schema_field(bool)
class OnOffField(StrictBooleanField):
    """A column with a time that is empty where the value is false."""

    def to_internal_value(self, data: Any) -> Any:
        return timezone.now() if super().to_internal_value(data) else None

    def get_attribute(self, instance: Any) -> bool:
        return super().get_attribute(instance) is not None


class ConversationSerializer(StrictSerializer, serializers.ModelSerializer[Any]):
    title = TextField(max_length=200, required=False, allow_blank=True)
    model = ModelField(source="language_model", required=False, allow_null=True)
    preset = PresetField(
        required=False,
        allow_null=True,
        help_text="If left out, a new conversation gets the default preset.",
    )
    instructions = TextField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        max_length=settings.MAX_INPUT_SIZE,
        help_text="System prompt; empty means the preset's prompt, or the site's.",
    )
    options = OptionsField(required=False, help_text="Options for every turn.")
    folder = FolderField(required=False, allow_null=True)
    tags = TagsField(required=False)
    pinned = OnOffField(source="pinned_at", required=False)
    archived = OnOffField(source="archived_at", required=False)
    temporary = StrictBooleanField(
        source="is_temporary",
        required=False,
        help_text="Only of a new conversation: in no list and no search, and erased"
        " after a day.",
    )
    unread = serializers.BooleanField(
        source="is_unread",
        read_only=True,
        default=False,
        help_text="Whether an answer has ended since the user last looked.",
    )

    class Meta:
        model = Conversation
        fields = [
            "id",
            "title",
            "model",
            "preset",
            "instructions",
            "options",
            "folder",
            "tags",
            "pinned",
            "archived",
            "temporary",
            "unread",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["id", "created_at", "updated_at"]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "language_model" in attrs:
            model = attrs["language_model"]
            attrs["model_pool"] = model.pool_name if model else ""
        return attrs

    @transaction.atomic
    def create(self, validated_data: dict[str, Any]) -> Any:
        if "preset" not in validated_data:
            preset = Preset.objects.default_for(self.context["user"])
            validated_data = {**validated_data, "preset": preset}
        tags = validated_data.pop("tags", None)
        if validated_data.get("title"):
            validated_data["title_source"] = TitleSource.PERSON
        row = super().create(validated_data)
        return self._set_tags(row, tags)

    @transaction.atomic
    def update(self, instance: Any, validated_data: dict[str, Any]) -> Any:
        tags = validated_data.pop("tags", None)
        if validated_data.pop("is_temporary", instance.is_temporary) != (
            instance.is_temporary
        ):
            problem = "Only a new conversation can be made temporary."
            raise serializers.ValidationError({"temporary": problem})
        if "title" in validated_data:
            validated_data["title_source"] = TitleSource.PERSON
        for name in ("pinned_at", "archived_at"):
            if validated_data.get(name) and getattr(instance, name):
                validated_data.pop(name)  # it keeps its time
        for name, value in validated_data.items():
            setattr(instance, name, value)
        # The others may have changed since the row was read.
        instance.save(update_fields=list(validated_data))
        return self._set_tags(instance, tags)

    def _set_tags(self, row: Any, names: list[str] | None) -> Any:
        if names is not None:
            row.tags.set(find_tags(self.context["user"], names))
        return row


class AttachmentSerializer(serializers.ModelSerializer[Any]):
    """A file of a conversation; messages name it by its `id`."""

    url = serializers.SerializerMethodField()

    class Meta:
        model = Attachment
        fields = ["id", "name", "content_type", "size", "url", "created_at"]

    def get_url(self, attachment: Attachment) -> str:
        return reverse("api:attachment", args=[attachment.pk])


class AttachmentsSerializer(serializers.Serializer[Any]):
    data = AttachmentSerializer(many=True)  # type: ignore[assignment]


class ToolCallSerializer(serializers.ModelSerializer[Any]):
    seconds = serializers.FloatField(read_only=True, allow_null=True)

    class Meta:
        model = ToolCall
        fields = [
            "call_id",
            "name",
            "state",
            "attempts",
            "seconds",
            "error",
            "started_at",
            "ended_at",
        ]


class ModelCallSerializer(serializers.ModelSerializer[Any]):
    status = serializers.CharField(read_only=True)

    class Meta:
        model = ModelCall
        fields = [
            "purpose",
            "step",
            "attempt",
            "provider_name",
            "model_name",
            "status",
            "error_code",
            "finish_reason",
            "input_tokens",
            "cached_tokens",
            "output_tokens",
            "reasoning_tokens",
            "service_tier",
            "web_searches",
            "file_searches",
            "cost",
            "ttft",
            "latency",
        ]

    def to_representation(self, call: ModelCall) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(call)
        return shown if settings.SHOW_COSTS else {**shown, "cost": None}


class TurnSerializer(serializers.ModelSerializer[Any]):
    """A turn with its items, asked and answered, in their order."""

    conversation = serializers.CharField(source="conversation_id", read_only=True)
    parent = serializers.CharField(  # type: ignore[assignment]
        source="parent_id", read_only=True, allow_null=True
    )
    siblings = serializers.ListField(
        source="sibling_ids",
        child=serializers.CharField(),
        read_only=True,
        help_text=(
            "The turns with the same parent that people opened, oldest first, this one"
            " included: versions of one message."
        ),
    )
    caused_by = serializers.CharField(
        source="caused_by_id",
        read_only=True,
        allow_null=True,
        help_text=(
            "The turn of the message that caused this turn; null for that turn itself."
        ),
    )
    halted_by = serializers.ChoiceField(
        choices=Turn.HaltedBy.choices,
        allow_blank=True,
        read_only=True,
        help_text="Why results of background tools open no further turns.",
    )
    model = ModelField(source="language_model", read_only=True, allow_null=True)
    steering = serializers.ChoiceField(
        choices=Turn.Steering.choices,
        allow_blank=True,
        read_only=True,
        help_text="Whether a waiting message joins the running turn.",
    )
    options = serializers.SerializerMethodField()
    usage = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()
    notes = serializers.SerializerMethodField()
    items = serializers.SerializerMethodField()
    tool_calls = ToolCallSerializer(many=True, read_only=True)

    class Meta:
        model = Turn
        fields = [
            "id",
            "conversation",
            "parent",
            "siblings",
            "author_name",
            "caused_by",
            "model",
            "options",
            "status",
            "incomplete_reason",
            "halted_by",
            "steering",
            "error",
            "usage",
            "notes",
            "items",
            "tool_calls",
            "created_at",
            "started_at",
            "finished_at",
        ]

    @extend_schema_field(schemas.OPTIONS)
    def get_options(self, turn: Turn) -> Any:
        """The public options; the gateway stores internal ones beside them."""
        known = {*schemas.OPTIONS["properties"]}
        if (user := self.context.get("user")) is not None:
            owner, author = turn.conversation.owner_id, turn.author_id
            if user.pk not in (author, owner):
                return {}
            is_own = author == user.pk or (author is None and not turn.author_name)
            if not is_own:  # declared tools may contain their author's credentials
                known -= {"tools"}
        return {name: value for name, value in turn.options.items() if name in known}

    @extend_schema_field(schema.USAGE)
    def get_usage(self, turn: Turn) -> Any:
        return turn.usage

    @extend_schema_field(schema.TURN_ERROR)
    def get_error(self, turn: Turn) -> Any:
        return _error(turn)

    @extend_schema_field(schema.NOTES)
    def get_notes(self, turn: Turn) -> Any:
        return turn.notes

    @extend_schema_field(schemas.ITEMS)
    def get_items(self, turn: Turn) -> Any:
        return [item.payload for item in turn.items.all()]


class TurnDetailSerializer(TurnSerializer):
    response = serializers.SerializerMethodField()
    model_calls = serializers.SerializerMethodField()

    class Meta(TurnSerializer.Meta):
        fields = [*TurnSerializer.Meta.fields, "response", "model_calls"]

    @extend_schema_field(schema.RESPONSE)
    def get_response(self, turn: Turn) -> Any:
        return response_object(turn)

    @extend_schema_field(ModelCallSerializer(many=True))
    def get_model_calls(self, turn: Turn) -> Any:
        calls = ModelCall.objects.filter(turn_id=turn.pk).order_by("id")
        return ModelCallSerializer(calls, many=True).data


class ModelSerializer(serializers.ModelSerializer[Any]):
    id = serializers.CharField(source="public_name", read_only=True)
    label = serializers.CharField(source="__str__", read_only=True)  # type: ignore[assignment]
    provider = serializers.CharField(source="provider.name", read_only=True)
    default = serializers.BooleanField(source="is_default", read_only=True)
    capabilities = serializers.SerializerMethodField(
        help_text="What it can do, as far as known."
    )
    context_window = serializers.SerializerMethodField(
        help_text="Tokens of prompt and answer together."
    )
    max_output_tokens = serializers.SerializerMethodField()
    prices = serializers.SerializerMethodField(
        help_text="USD per million tokens; null if unknown, or if staff hide costs."
    )

    class Meta:
        model = LanguageModel
        fields = [
            "id",
            "label",
            "description",
            "provider",
            "default",
            "capabilities",
            "context_window",
            "max_output_tokens",
            "prices",
        ]

    @extend_schema_field(schema.CAPABILITIES)
    def get_capabilities(self, model: LanguageModel) -> Any:
        known = capabilities(model).to_dict()
        return {name: known[name] for name in known if name not in LIMITS}

    def get_context_window(self, model: LanguageModel) -> int | None:
        return capabilities(model).context_window

    def get_max_output_tokens(self, model: LanguageModel) -> int | None:
        return capabilities(model).max_output_tokens

    @extend_schema_field(schema.PRICES)
    def get_prices(self, model: LanguageModel) -> Any:
        if (prices := find_prices(model)) is None:
            return None
        return {"input": float(prices.read), "output": float(prices.written)}


class ModelsSerializer(PageSerializer):
    results = ModelSerializer(many=True)
    data = ModelSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


def response_object(turn: Turn) -> dict[str, Any]:
    """The turn's answer so far, as a response object like that of its last event."""
    builder = ResponseBuilder(
        id=turn.pk,
        model=turn.language_model.public_name if turn.language_model else "",
        created_at=int(turn.created_at.timestamp()),
    )
    output = [i.payload for i in turn.items.all() if i.origin == Item.Origin.OUTPUT]
    is_cancelled = turn.status == Turn.Status.CANCELLED
    reason = turn.incomplete_reason
    finished_at = turn.finished_at
    return {
        **builder.response([*output, *(turn.partial or [])]),
        "status": Turn.Status.INCOMPLETE if is_cancelled else turn.status,
        "incomplete_details": {"reason": reason} if reason else None,
        "error": _error(turn),
        "usage": turn.usage,
        "completed_at": int(finished_at.timestamp()) if finished_at else None,
    }


def _error(turn: Turn) -> dict[str, Any] | None:
    """The error in the shape of a response, without its internal fields."""
    error = turn.error
    return error and {name: error.get(name) for name in ("code", "message")}
