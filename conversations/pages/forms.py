from __future__ import annotations

import hashlib
import uuid
from abc import abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from django import forms
from django.conf import settings
from django.db import transaction
from django.utils.datastructures import MultiValueDict
from django.utils.functional import cached_property
from django.utils.text import normalize_newlines

from conversations import engine
from conversations.access.admission import check_user_tokens_available
from conversations.access.declared_tools import check_declared_kinds
from conversations.models import (
    Attachment,
    Conversation,
    IdempotencyKey,
    Item,
    Turn,
)
from conversations.models.preset import Preset
from conversations.turns.attachments import (
    UploadRefused,
    ValidatedFile,
    check_inline_quota,
    discard,
    parts_for,
    save_attachments,
    validate_files,
)
from conversations.turns.history import estimate_tokens
from conversations.turns.tool_choices import ToolChoice, choose_tools, tool_choices
from llm import router
from llm.models import LanguageModel
from llm.wire.items import Item as ItemPayload
from llm.wire.items import new_id, user_message

SUGGESTIONS = [
    "What is the weather in Paris, and what time is it there?",
    "What is (17 + 25) * 3?",
    "Think it through: what time is it in Tokyo?",
    "Write a Python function that merges two sorted lists.",
]


class TurnForm(forms.Form):
    """Base of the forms that open a turn: model and idempotency key.

    The key prevents a double click from opening two turns.
    """

    model = forms.CharField(required=False)
    key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    #: Seconds to wait, where the user has exceeded a rate limit.
    retry_after: int | None = None

    def __init__(
        self,
        data: Any = None,
        *,
        user: Any,
        conversation: Conversation | None = None,
        last_model: LanguageModel | None = None,
    ) -> None:
        super().__init__(data, initial={"key": uuid.uuid4().hex})
        self.user = user
        self.conversation = conversation
        self._last_model = last_model

    @cached_property
    def models(self) -> list[LanguageModel]:
        """The models the user may choose from, by provider."""
        return list(router.available(self.user).order_by("provider__name", "name"))

    @cached_property
    def tools(self) -> list[ToolChoice]:
        """The tools that the conversation may use, and whether each is switched on."""
        return tool_choices(self.user, self.conversation)

    @property
    def tools_in_use(self) -> int:
        return sum(tool.is_on for tool in self.tools)

    @cached_property
    def chosen(self) -> LanguageModel | None:
        """The model that the picker shows: chosen now, last used, or the default."""
        if model := self._find_model(self.data.get("model", "")):
            return model
        return self.default_model(self.chosen_preset)

    @property
    def chosen_preset(self) -> Preset | None:
        return self.conversation.preset if self.conversation else None

    def default_model(self, preset: Preset | None) -> LanguageModel | None:
        """The model of a turn that does not name one."""
        used = self._last_model or self._conversation_model(preset)
        if used is None and self.conversation is None:
            used = self._last_chosen_model
        if used in self.models:
            return used
        default = (model for model in self.models if model.is_default)
        return next(default, self.models[0] if self.models else None)

    @cached_property
    def _last_chosen_model(self) -> LanguageModel | None:
        """The model of the user's latest message in a conversation without a preset."""
        rows = Conversation.objects.of(self.user).filter(preset=None)
        latest = rows.order_by("-updated_at", "-pk").first()
        if latest is None:
            return None
        turns = latest.turns.filter(access_token=None).select_related("language_model")
        turn = turns.order_by("-created_at", "-pk").first()
        return turn.language_model if turn else None

    def _conversation_model(self, preset: Preset | None) -> LanguageModel | None:
        if self.conversation:
            return self.conversation.usual_model
        return preset.language_model if preset else None

    def clean_model(self) -> LanguageModel:
        if self.chosen is None:
            raise forms.ValidationError(
                "No model is available yet; ask the staff to set one up."
            )
        name = self.cleaned_data["model"]
        if not name:
            return self.chosen
        if model := self._find_model(name):
            return model
        raise forms.ValidationError(
            "The model “%(name)s” is not available; choose another one.",
            params={"name": name[:100]},
        )

    @abstractmethod
    def items(self) -> list[ItemPayload]:
        """The input items of the turn."""

    def open_turn(self) -> Turn:
        """Open the turn, once for each key, and submit it to the engine.

        Raises UploadRefused where other uploads have used up the quota meanwhile,
        TooFast where the user has used too many tokens, ToolNotAllowed where the
        conversation's options declare tools that the user may not use.
        """
        items = self.items()
        turn, _ = IdempotencyKey.objects.get_or_open(
            self.user, self._key(items), "page", partial(self._open, items)
        )
        engine.submit(turn.pk, turn.conversation_id)
        return turn

    def _find_model(self, name: str) -> LanguageModel | None:
        return next((m for m in self.models if m.public_name == name), None)

    def _open(self, items: list[ItemPayload]) -> Turn:
        check_user_tokens_available(self.user, estimate_tokens("", items))
        with transaction.atomic():
            check_inline_quota(self.user.pk, items)
            conversation = self._get_conversation()
            check_declared_kinds(conversation.options, self.user)
            return self._open_turn_in(conversation, items)

    @abstractmethod
    def _get_conversation(self) -> Conversation:
        """The conversation of the turn; creates one if there is none."""

    def _open_turn_in(
        self, conversation: Conversation, items: list[ItemPayload]
    ) -> Turn:
        model = self.cleaned_data["model"]
        return conversation.open_turn(items, language_model=model)

    def _content_to_hash(self, items: list[ItemPayload]) -> list[Any]:
        return [item["content"] for item in items]

    def _key(self, items: list[ItemPayload]) -> str:
        """The idempotency key. It contains a hash of what is sent, because the form's
        key is one for a page, which may send several different messages."""
        key = self.cleaned_data["key"] or uuid.uuid4().hex
        conversation_id = self.conversation.pk if self.conversation else ""
        content = [conversation_id, *self._content_to_hash(items)]
        return f"page:{key}:{hashlib.sha256(repr(content).encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class PresetChoice:
    preset: Preset
    model: LanguageModel | None  # of turns that do not name one
    is_on: bool

    @property
    def tools(self) -> list[str] | None:
        """Names of the tools that may be used; None for all."""
        names = [tool.name for tool in self.preset.tools.all()]
        return names if names or self.preset.only_named_tools else None


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        return files.getlist(name) if files else []


class FilesField(forms.FileField):
    """Any number of files, validated. `owner_id` must be set before it is cleaned."""

    widget = FilesInput
    owner_id: Any = None

    def clean(self, data: Any, initial: Any = None) -> list[ValidatedFile]:
        try:
            return validate_files(self.owner_id, data)
        except UploadRefused as exc:
            raise forms.ValidationError(str(exc), code=exc.code) from exc


class MessageForm(TurnForm):
    text = forms.CharField(required=False, strip=False)
    #: Value of a suggestion button; typed text has precedence.
    suggestion = forms.CharField(required=False)
    file = FilesField(required=False)
    #: Name of the preset of a new conversation, "" for none.
    preset = forms.CharField(required=False)
    #: Sent where the page showed the tools, as unticked boxes send nothing.
    tools_shown = forms.BooleanField(required=False)

    def __init__(
        self, data: Any = None, files: Any = None, *, user: Any, **where: Any
    ) -> None:
        super().__init__(data, user=user, **where)
        self.files = files or MultiValueDict()
        field = self.fields["file"]
        assert isinstance(field, FilesField)
        field.owner_id = user.pk

    @cached_property
    def presets(self) -> list[PresetChoice]:
        """The presets that a new conversation may begin with."""
        if self.conversation:
            return []
        rows = Preset.objects.available_to(self.user).prefetch_related("tools")
        rows = rows.select_related("language_model__provider")
        return [
            PresetChoice(row, self.default_model(row), row == self.chosen_preset)
            for row in rows.order_by("-is_default", "label", "name")
        ]

    @cached_property
    def chosen_preset(self) -> Preset | None:
        """The conversation's preset; for a new one the chosen or the default preset."""
        if self.conversation:
            return self.conversation.preset
        if (name := self.data.get("preset")) is None:
            return Preset.objects.default_for(self.user)
        return Preset.objects.available_to(self.user).filter(name=name).first()

    @property
    def plain_model(self) -> LanguageModel | None:
        """The default model without a preset."""
        return self.default_model(None)

    @property
    def is_usual(self) -> bool:
        """True if no model is chosen, so that the preset determines it."""
        return bool(self.presets) and not self._find_model(self.data.get("model", ""))

    def clean_preset(self) -> Preset | None:
        name = self.cleaned_data["preset"]
        if name and not self.conversation and not self.chosen_preset:
            raise forms.ValidationError(
                "The preset “%(name)s” is not available; choose another one.",
                params={"name": name[:100]},
            )
        return self.chosen_preset

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        text = normalize_newlines(data.get("text") or data.get("suggestion") or "")
        size = len(text.encode())
        is_empty = not text.strip() and not data.get("file")
        if not self.errors.keys() & {"text", "file"} and is_empty:
            self.add_error("text", "Write a message first.")
        elif size > settings.MAX_INPUT_SIZE:
            self.add_error(
                "text",
                f"The message is too long: {size:,} bytes, and at most"
                f" {settings.MAX_INPUT_SIZE:,} are taken. Send it in parts.",
            )
        return {**data, "text": text}

    def items(self) -> list[ItemPayload]:
        return [user_message(self.cleaned_data["text"])]

    def _get_conversation(self) -> Conversation:
        return self.conversation or self._create_conversation()

    def _create_conversation(self) -> Conversation:
        """Without a model of its own where the preset determines it."""
        preset, model = self.cleaned_data["preset"], self.cleaned_data["model"]
        return Conversation.objects.create(
            owner=self.user,
            preset=preset,
            language_model=None if preset and self.is_usual else model,
        )

    def _content_to_hash(self, items: list[ItemPayload]) -> list[Any]:
        files = [(one.name, one.digest) for one in self.cleaned_data["file"]]
        return [*super()._content_to_hash(items), *files]

    def _open_turn_in(
        self, conversation: Conversation, items: list[ItemPayload]
    ) -> Turn:
        """Also stores the files, which must belong to a conversation."""
        rows: list[Attachment] = []
        with ExitStack() as rollback:
            with transaction.atomic():
                if self.cleaned_data["tools_shown"]:
                    data: Any = self.data
                    choose_tools(self.user, conversation, data.getlist("tool"))
                if files := self.cleaned_data["file"]:
                    rows = save_attachments(conversation, files)
                    rollback.callback(discard, rows)
                items = [_with_files(rows, item) for item in items]
                turn = super()._open_turn_in(conversation, items)
            rollback.pop_all()
        return turn


class RetryForm(TurnForm):
    """Repeat a turn's input with the model that the picker shows."""

    def __init__(self, data: Any, *, turn: Turn, user: Any) -> None:
        super().__init__(data, user=user, conversation=turn.conversation)
        self._turn = turn

    def items(self) -> list[ItemPayload]:
        return [
            {**row.payload, "id": new_id("msg")}
            for row in self._turn.items.filter(origin=Item.Origin.INPUT)
            if row.payload.get("role") == "user"
        ]

    def _get_conversation(self) -> Conversation:
        return self._turn.conversation


def _with_files(rows: list[Attachment], item: ItemPayload) -> ItemPayload:
    """The message with its files before its text."""
    if not rows:
        return item
    text_parts = [part for part in item["content"] if part["text"].strip()]
    return {**item, "content": [*parts_for(rows), *text_parts]}


class TitleForm(forms.ModelForm):
    class Meta:
        model = Conversation
        fields = ["title"]
        widgets = {"title": forms.TextInput(attrs={"autocomplete": "off"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["title"].required = True
