"""The form of a new message, which may begin a conversation."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django import forms
from django.conf import settings
from django.db import transaction
from django.http import QueryDict
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from conversations import engine
from conversations.access import maintenance, overload
from conversations.models import (
    Attachment,
    BranchChoice,
    Conversation,
    Folder,
    IdempotencyKey,
    SignedInSession,
    Turn,
)
from conversations.models.preset import Preset
from conversations.pages.forms.chat_options_form import EFFORTS, with_effort
from conversations.pages.forms.file_field import FilesField
from conversations.pages.forms.turn_form import KEY_FINGERPRINT, TurnForm, allowed_by
from conversations.turns import waiting_messages
from conversations.turns.attachments import (
    discard,
    insert_stored,
    parts_for,
    store_files,
)
from conversations.turns.branches import MAX_COMPARED, place_beside
from conversations.turns.tool_choices import ToolChoice, choose_tools
from llm.models import LanguageModel
from llm.wire.items import Item as ItemPayload
from llm.wire.items import new_id, user_message

LINE_END = re.compile(r"\r\n|\r")
SUGGESTIONS = [
    _("What is the weather in Paris, and what time is it there?"),
    _("What is (17 + 25) * 3?"),
    _("Think it through: what time is it in Tokyo?"),
    _("Write a Python function that merges two sorted lists."),
]


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

    @property
    def models(self) -> list[str]:
        """Names of the models that may be used; none for all."""
        return [model.public_name for model in self.preset.allowed_models.all()]


class MessageForm(TurnForm):
    text = forms.CharField(required=False, strip=False)
    #: Value of a suggestion button, sent instead of the typed text.
    suggestion = forms.CharField(required=False)
    file = FilesField(required=False)
    #: Further models that answer the message, to be compared.
    compare = forms.Field(required=False)
    #: Name of the preset of a new conversation, "" for none.
    preset = forms.CharField(required=False)
    #: Id of the folder of a new conversation, "" for none.
    folder = forms.CharField(required=False)
    #: A new conversation that is erased when the session ends.
    temporary = forms.BooleanField(required=False)
    #: Of a new conversation, as `ChatOptionsForm` changes them later.
    instructions = forms.CharField(required=False, strip=False)
    effort = forms.ChoiceField(required=False, choices=EFFORTS)
    #: A turn of the branch that the page shows: the message goes to its end.
    branch = forms.CharField(required=False, max_length=64)
    #: Sent where the page showed the tools, as unticked boxes send nothing.
    tools_shown = forms.BooleanField(required=False)

    def __init__(
        self,
        data: Any = None,
        files: Any = None,
        *,
        user: Any,
        folder_id: str = "",
        session_key: str | None = None,
        **where: Any,
    ) -> None:
        super().__init__(data, user=user, **where)
        self.folder_id = folder_id  # that the page's address names
        self.session_key = session_key
        self.files: Any = files or QueryDict()
        self._stored: list[Attachment] = []  # not inserted yet
        field = self.fields["file"]
        assert isinstance(field, FilesField)
        field.owner_id = user.pk

    @cached_property
    def presets(self) -> list[PresetChoice]:
        """The presets that a new conversation may begin with."""
        if self.conversation:
            return []
        rows = Preset.objects.available_to(self.user)
        rows = rows.prefetch_related("tools", "allowed_models__provider")
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

    @cached_property
    def tools(self) -> list[ToolChoice]:
        """With the boxes as they were sent: a refused message comes back with them."""
        tools = super().tools
        if not self.data.get("tools_shown"):
            return tools
        data: Any = self.data
        chosen = data.getlist("tool")
        return [replace(tool, is_on=tool.name in chosen) for tool in tools]

    @property
    def plain_model(self) -> LanguageModel | None:
        """The default model without a preset."""
        return self.default_model(None)

    @property
    def efforts(self) -> list[tuple[str, Any]]:
        return EFFORTS

    @property
    def is_usual(self) -> bool:
        """True if no model is chosen, so that the preset or folder determines it."""
        has_choice = bool(self.presets) or self.chosen_folder is not None
        return has_choice and not self._find_model(self.data.get("model", ""))

    def clean_preset(self) -> Preset | None:
        name = self.cleaned_data["preset"]
        if name and not self.conversation and not self.chosen_preset:
            raise forms.ValidationError(
                _("The preset “%(name)s” is not available; choose another one."),
                params={"name": name[:100]},
            )
        return self.chosen_preset

    @cached_property
    def chosen_folder(self) -> Folder | None:
        """The conversation's folder; for a new one the folder that is chosen."""
        if self.conversation:
            return self.conversation.folder
        pk = self.data.get("folder") or self.folder_id
        if not (pk.isascii() and pk.isdecimal()):
            return None
        rows = Folder.objects.of(self.user).select_related("language_model")
        found: Folder | None = rows.filter(pk=int(pk[:18])).first()
        return found

    def clean_folder(self) -> Folder | None:
        if self.cleaned_data["folder"] and not self.chosen_folder:
            raise forms.ValidationError(
                _("This folder does not exist any more; choose another one, or none.")
            )
        return self.chosen_folder

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        text = LINE_END.sub("\n", data.get("suggestion") or data.get("text") or "")
        if len((data.get("instructions") or "").encode()) > settings.MAX_INPUT_SIZE:
            self.add_error("instructions", _("The instructions are too long."))
        size = len(text.encode())
        is_empty = not text.strip() and not data.get("file")
        if not self.errors.keys() & {"text", "file"} and is_empty:
            self.add_error("text", _("Write a message first."))
        elif size > settings.MAX_INPUT_SIZE:
            self.add_error(
                "text",
                _(
                    "The message is too long: %(size)s bytes; the limit is %(limit)s."
                    " Send it in parts."
                )
                % {"size": f"{size:,}", "limit": f"{settings.MAX_INPUT_SIZE:,}"},
            )
        return {**data, "text": text}

    def items(self) -> list[ItemPayload]:
        return [user_message(self.cleaned_data["text"])]

    def _get_conversation(self) -> Conversation:
        return self.conversation or self._create_conversation()

    def _place(self) -> dict[str, Any]:
        branch = self.cleaned_data["branch"]
        if self.conversation is None or not branch:
            return {}
        return {"branch": branch}

    @property
    def compared_models(self) -> list[LanguageModel]:
        """Models that answer the message too, beside the chosen one."""
        data: Any = self.data
        names = data.getlist("compare") if hasattr(data, "getlist") else []
        models = allowed_by(self.chosen_preset, self.models) if names else []
        return [model for model in models if model.public_name in names]

    def clean_compare(self) -> list[LanguageModel]:
        others = [
            m for m in self.compared_models if m != self.cleaned_data.get("model")
        ]
        if len(others) >= MAX_COMPARED:
            raise forms.ValidationError(
                _("Compare at most %(count)s models at once."),
                params={"count": MAX_COMPARED},
            )
        return others

    def _create_conversation(self) -> Conversation:
        """Without a model of its own where the preset determines it."""
        preset, model = self.cleaned_data["preset"], self.cleaned_data["model"]
        folder = self.cleaned_data["folder"]
        has_usual = preset or (folder and folder.language_model)
        return Conversation.objects.create(
            owner=self.user,
            preset=preset,
            folder=folder,
            language_model=None if has_usual and self.is_usual else model,
            instructions=self.cleaned_data["instructions"].strip(),
            options=with_effort({}, self.cleaned_data["effort"]),
            **self._temporary(),
        )

    def _temporary(self) -> dict[str, Any]:
        if not self.cleaned_data["temporary"]:
            return {}
        session = SignedInSession.objects.filter(session_key=self.session_key or "")
        return {"is_temporary": True, "session": session.first()}

    def _content_to_hash(self, items: list[ItemPayload]) -> list[Any]:
        files = [(one.name, one.digest) for one in self.cleaned_data["file"]]
        models = [model.pk for model in self.cleaned_data["compare"]]
        return [*super()._content_to_hash(items), *files, *models]

    def _get_or_open(self, items: list[ItemPayload], key: str) -> tuple[Turn, bool]:
        """Also stores the files: before the transaction, whose locks a slow storage
        would hold."""
        files = self.cleaned_data["file"]
        keys = IdempotencyKey.objects
        if not files or keys.find_turn(self.user, key, KEY_FINGERPRINT):
            return super()._get_or_open(items, key)
        overload.check_room()
        maintenance.check_open()
        with ExitStack() as rollback:
            self._stored = store_files(files)
            rollback.callback(discard, self._stored)
            turn, is_new = super()._get_or_open(items, key)
            if is_new:
                rollback.pop_all()
        return turn, is_new

    def _size_of_new_files(self) -> int:
        return sum(file.size for file in self.cleaned_data["file"])

    def _open_turn_in(
        self, conversation: Conversation, items: list[ItemPayload]
    ) -> Turn:
        """Also inserts the files, which must belong to a conversation."""
        with transaction.atomic():
            is_own = conversation.owner_id == self.user.pk
            if self.cleaned_data["tools_shown"] and is_own:
                data: Any = self.data
                is_new = self.conversation is None
                chosen = data.getlist("tool")
                choose_tools(self.user, conversation, chosen, is_new=is_new)
            if self._stored:
                insert_stored(conversation, self._stored, self.user)
            items = [_with_files(self._stored, item) for item in items]
            return self._open_compared(conversation, items)

    def _open_compared(
        self, conversation: Conversation, items: list[ItemPayload]
    ) -> Turn:
        """The turn; with models to compare, a sibling for each, which the page shows
        side by side. The user goes on with the first unless they choose another."""
        others = self.cleaned_data["compare"]
        if not others:
            return super()._open_turn_in(conversation, items)
        comparison = new_id("cmp")
        interrupts = self.cleaned_data["when"] == "interrupt"
        if interrupts:
            waiting_messages.lock(conversation.pk)
        first = conversation.open_turn(
            items,
            language_model=self.cleaned_data["model"],
            comparison=comparison,
            author=self.user,
            **self._place(),
        ).turn
        for stopped in waiting_messages.stop_before(first) if interrupts else ():
            transaction.on_commit(partial(engine.cancel, stopped))
        for model in others:
            sibling = conversation.open_turn(
                [{**item, "id": new_id("msg")} for item in items],
                language_model=model,
                comparison=comparison,
                author=self.user,
                **place_beside(first),
            ).turn
            transaction.on_commit(partial(_submit, sibling, self.user.pk))
        BranchChoice.objects.choose(conversation.pk, self.user.pk, first.pk)
        return first


def _submit(turn: Turn, owner: int) -> None:
    engine.submit(turn.pk, turn.conversation_id, owner=owner)


def _with_files(rows: list[Attachment], item: ItemPayload) -> ItemPayload:
    """The message with its files before its text."""
    if not rows:
        return item
    text_parts = [part for part in item["content"] if part["text"].strip()]
    return {**item, "content": [*parts_for(rows), *text_parts]}
