from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import orjson
from django.conf import settings
from django.db import transaction
from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from conversations.access.admission import check_user_tokens_available
from conversations.access.declared_tools import check_declared_kinds
from conversations.api import schema
from conversations.api.authentication import admit_turn
from conversations.api.errors import IdempotencyKeyConflict, InvalidInput
from conversations.models import (
    Attachment,
    Conversation,
    IdempotencyKey,
    Item,
    KeyReused,
    ToolCall,
    Turn,
)
from conversations.models.access_token import AccessToken
from conversations.models.preset import Preset
from conversations.turns.attachments import (
    UnknownFile,
    UploadRefused,
    check_inline_quota,
    resolve_file_parts,
)
from conversations.turns.client_outputs import OUTPUT_TYPES
from conversations.turns.history import estimate_tokens
from conversations.turns.input_checks import InputError, InputSizeError, short_repr
from conversations.turns.request_input import items_of, options_of
from llm import router
from llm.adaptation import hosted_tools as hosted
from llm.capabilities import Capabilities
from llm.errors import LLMError
from llm.models import LanguageModel, ModelCall
from llm.wire.items import Item as ItemPayload
from llm.wire.response import ResponseBuilder
from tools.models import Tool

KEY_LENGTH = 255  # characters


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses by name what it does not know, so that no option is lost in silence."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            for name in data:
                if name not in self.fields:
                    known = ", ".join(self.fields)
                    raise serializers.ValidationError(
                        {name[:100]: f"Unknown; known are {known}."},
                        code="unknown_parameter",
                    )
        return super().to_internal_value(data)


class TextField(serializers.CharField):
    """A text field that refuses numbers, which DRF's `CharField` accepts."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


@extend_schema_field(schema.MODEL_NAME)
class ModelField(serializers.Field[Any, Any, Any, Any]):
    """A model that the user may use, by any of its names; null is the default model."""

    default_error_messages = {"invalid": "Not a valid string."}

    def to_internal_value(self, data: Any) -> LanguageModel:
        if not isinstance(data, str):
            self.fail("invalid")
        return model_of(data, self.context["user"])

    def to_representation(self, value: LanguageModel) -> str:
        return value.public_name


@extend_schema_field(schema.PRESET_NAME)
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


@extend_schema_field(schema.INPUT)
class InputField(_CheckedField):
    def check(self, data: Any) -> list[ItemPayload]:
        return items_of(data, max_size=settings.MAX_INPUT_SIZE)


@extend_schema_field(schema.OPTIONS)
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
        found = Tool.objects.visible_to(self.context["user"]).filter(name__in=names)
        if unknown := set(names) - set(found.values_list("name", flat=True)):
            raise InputError(
                where,
                f"no tool is named {short_repr(min(unknown))}.",
                code="unknown_tool",
            )


class ConversationSerializer(StrictSerializer, serializers.ModelSerializer[Any]):
    title = TextField(max_length=200, required=False, allow_blank=True)
    model = ModelField(source="language_model", required=False, allow_null=True)
    preset = PresetField(
        required=False,
        allow_null=True,
        help_text="Left out, a new conversation begins with the default preset.",
    )
    instructions = TextField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        max_length=settings.MAX_INPUT_SIZE,
        help_text="System prompt; empty means the preset's, or the site's own.",
    )
    options = OptionsField(required=False, help_text="Options of every turn.")

    class Meta:
        model = Conversation
        fields = [
            "id",
            "title",
            "model",
            "preset",
            "instructions",
            "options",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["id", "created_at", "updated_at"]

    def create(self, validated_data: dict[str, Any]) -> Any:
        if "preset" not in validated_data:
            preset = Preset.objects.default_for(self.context["user"])
            validated_data = {**validated_data, "preset": preset}
        return super().create(validated_data)


class TurnRequestSerializer(StrictSerializer):
    """A message to a conversation. Context: `user`, `conversation`, and maybe
    `idempotency_key`."""

    input = InputField(help_text="A string, Responses items, or {role, content}s.")
    model = ModelField(required=False, allow_null=True)
    options = OptionsField(required=False)
    wait = serializers.BooleanField(
        default=False, help_text="Answer with the finished response."
    )
    stream = serializers.BooleanField(
        default=False, help_text="Answer with the turn's events."
    )

    def get_fields(self) -> dict[str, Any]:
        """Copy the fields shallowly.

        DRF copies all arguments of each field, which takes as long as checking the
        message.
        """
        return {name: copy(field) for name, field in self._declared_fields.items()}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["wait"] and attrs["stream"]:
            raise serializers.ValidationError({"stream": "Choose 'wait' or 'stream'."})
        if not attrs.get("model"):
            attrs["model"] = self._usual_model()
        self._check_outputs(attrs["input"])
        self._check_declared(attrs["model"], attrs.get("options") or {})
        if "tools" not in (attrs.get("options") or {}):
            # They were permitted when they were set, perhaps long ago.
            conversation_options = self.context["conversation"].options
            check_declared_kinds(
                conversation_options, self.context["user"], self.context.get("token")
            )
        attrs["input"] = self._with_files(attrs["input"])
        return attrs

    def create(self, validated_data: dict[str, Any]) -> Turn:
        """The new turn, or that of an earlier request with the same idempotency key."""

        token: AccessToken | None = self.context.get("token")

        def open_turn() -> Turn:
            items = validated_data["input"]
            if token is not None:
                admit_turn(token, validated_data["model"], items)
            else:
                check_user_tokens_available(
                    self.context["user"], estimate_tokens("", items)
                )
            conversation: Conversation = self.context["conversation"]
            with transaction.atomic():
                self._check_quota(conversation, validated_data["input"])
                return conversation.open_turn(
                    validated_data["input"],
                    language_model=validated_data["model"],
                    options=validated_data.get("options"),
                    access_token=token,
                )

        key = idempotency_key(self.context.get("idempotency_key"))
        return self._once(key, open_turn) if key else open_turn()

    def _check_quota(self, conversation: Conversation, items: list[Any]) -> None:
        try:
            check_inline_quota(conversation.owner_id, items)
        except UploadRefused as exc:
            raise InvalidInput(
                InputSizeError("input", str(exc), code=exc.code)
            ) from exc

    def _once(self, key: str, open_turn: Callable[[], Turn]) -> Turn:
        try:
            turn, _ = IdempotencyKey.objects.get_or_open(
                self.context["user"], key, self._fingerprint(), open_turn
            )
        except KeyReused as exc:
            raise IdempotencyKeyConflict from exc
        return turn

    def _fingerprint(self) -> str:
        """Hash of the request without `wait` and `stream`; a retry may change those."""
        compared = {n: self.initial_data.get(n) for n in ("input", "model", "options")}
        compared["conversation"] = self.context["conversation"].pk
        return hashlib.sha256(
            orjson.dumps(compared, option=orjson.OPT_SORT_KEYS)
        ).hexdigest()

    def _usual_model(self) -> LanguageModel:
        usual = self.context["conversation"].usual_model
        return model_of(usual.public_name if usual else None, self.context["user"])

    def _with_files(self, items: list[ItemPayload]) -> Any:
        try:
            return resolve_file_parts(self.context["conversation"], items)
        except UnknownFile as exc:
            raise InvalidInput(
                InputError(exc.param, str(exc), code="unknown_file")
            ) from exc

    def _check_outputs(self, items: list[ItemPayload]) -> None:
        """Refuse an output that answers no call of this conversation."""
        for kind, (answers, name, asks) in OUTPUT_TYPES.items():
            answered = {item[name] for item in items if item["type"] == kind}
            if not answered:
                continue
            rows = Item.objects.filter(
                turn__conversation=self.context["conversation"], type=answers
            )
            if unknown := answered - set(
                rows.values_list(f"payload__{asks}", flat=True)
            ):
                raise InvalidInput(
                    InputError(
                        "input",
                        f"no call {min(unknown)[:100]!r} waits for an output.",
                        code="unknown_call",
                    )
                )

    def _check_declared(self, model: LanguageModel, options: dict[str, Any]) -> None:
        """Refuse tools that the model's provider would run but does not support."""
        declared = options.get("tools") or []
        if options.get("ignore_invalid_options"):
            return
        if not (hosted_tools := [each for each in declared if hosted.is_hosted(each)]):
            return
        route = router.route_of(model)
        capabilities = Capabilities.from_dict(route.capabilities)
        functions = [each for each in declared if each not in hosted_tools]
        for tool in hosted_tools:
            why = hosted.why_unsupported(
                route.endpoint.codec,
                capabilities,
                tool,
                model=route.model,
                beside=functions,
            )
            if why:
                index = declared.index(tool)
                problem = (
                    f"this model cannot be given {short_repr(tool['type'])}. {why}"
                )
                raise InvalidInput(InputError(f"options.tools[{index}]", problem))


def model_of(name: str | None, user: Any) -> LanguageModel:
    """Find a model by name. Raises LLMError if `user` cannot use it."""
    try:
        model = router.find_model(name, user=user)
        model.resolved_route = router.route_of(model)
    except LLMError as exc:
        exc.param = exc.param or "model"
        raise
    return model


def idempotency_key(key: Any) -> str | None:
    """The request's key, checked; None if it has none. Raises InvalidInput."""
    if key is None:
        return None
    if not isinstance(key, str) or not key.isprintable() or not key.strip():
        problem = "expected a text of printable characters."
    elif len(key) > KEY_LENGTH:
        problem = f"longer than {KEY_LENGTH} characters."
    else:
        return key
    raise InvalidInput(InputError("Idempotency-Key", problem))


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
            "cost",
            "ttft",
            "latency",
        ]


class TurnSerializer(serializers.ModelSerializer[Any]):
    """A turn with its items, asked and answered, in their order."""

    conversation = serializers.CharField(source="conversation_id", read_only=True)
    parent = serializers.CharField(  # type: ignore[assignment]
        source="parent_id", read_only=True, allow_null=True
    )
    caused_by = serializers.CharField(
        source="caused_by_id",
        read_only=True,
        allow_null=True,
        help_text="The message's turn that caused it; null for that turn itself.",
    )
    halted_by = serializers.ChoiceField(
        choices=Turn.HaltedBy.choices,
        allow_blank=True,
        read_only=True,
        help_text="Why results of background tools open no further turns.",
    )
    model = ModelField(source="language_model", read_only=True, allow_null=True)
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
            "caused_by",
            "model",
            "options",
            "status",
            "incomplete_reason",
            "halted_by",
            "error",
            "usage",
            "notes",
            "items",
            "tool_calls",
            "created_at",
            "started_at",
            "finished_at",
        ]

    @extend_schema_field(schema.OPTIONS)
    def get_options(self, turn: Turn) -> Any:
        """The public options; the gateway stores internal ones beside them."""
        known = schema.OPTIONS["properties"]
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

    @extend_schema_field(schema.ITEMS)
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
    capabilities = serializers.SerializerMethodField()

    class Meta:
        model = LanguageModel
        fields = [
            "id",
            "label",
            "provider",
            "default",
            "capabilities",
            "context_window",
            "max_output_tokens",
        ]

    @extend_schema_field(schema.CAPABILITIES)
    def get_capabilities(self, model: LanguageModel) -> Any:
        return model.capabilities


class ModelsSerializer(serializers.Serializer[Any]):
    data = ModelSerializer(many=True)  # type: ignore[assignment]


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
