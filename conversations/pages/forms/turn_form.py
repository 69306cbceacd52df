"""Base of the forms that open a turn."""

from __future__ import annotations

import hashlib
import uuid
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django import forms
from django.db import transaction
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from conversations import engine
from conversations.access import maintenance, overload
from conversations.access.admission import check_user_tokens_available
from conversations.access.declared_tools import check_declared_kinds
from conversations.access.errors import TooFast
from conversations.access.limits.admission import admit_message
from conversations.access.webhooks.limit_events import notes_refusals
from conversations.models import (
    Conversation,
    Folder,
    IdempotencyKey,
    Turn,
)
from conversations.models.preset import Preset
from conversations.models.user_settings import UserSettings
from conversations.requests.queue_changes import notify_running_turn
from conversations.turns import waiting_messages
from conversations.turns.attachments import (
    check_inline_quota,
)
from conversations.turns.error_texts import text_for_reader
from conversations.turns.history import estimate_tokens
from conversations.turns.tool_choices import ToolChoice, tool_choices
from llm import router
from llm.errors import ModelNotAvailable
from llm.models import LanguageModel
from llm.providers.demo import PROVIDER as DEMO
from llm.wire.items import Item as ItemPayload

KEY_FINGERPRINT = "page"  # a page's key has a hash of what is sent


@dataclass(frozen=True, slots=True)
class Retirement:
    """A model that is retired or will be, and the one that answers from then on."""

    model: LanguageModel
    replacement: LanguageModel | None


def allowed_by(
    preset: Preset | None, models: Iterable[LanguageModel]
) -> list[LanguageModel]:
    """Those of `models` that the preset allows; all without one."""
    allowed = preset.allowed_model_ids() if preset else ()
    return [model for model in models if not allowed or model.pk in allowed]


class TurnForm(forms.Form):
    """Base of the forms that open a turn: model and idempotency key.

    The key prevents a double click from opening two turns.
    """

    model = forms.CharField(required=False)
    key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    #: What happens while another turn runs.
    when = forms.ChoiceField(
        required=False, choices=[(when, when) for when in waiting_messages.WHENS]
    )
    #: Why the message was not taken now: a rate limit, or maintenance.
    refusal: TooFast | None = None

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
        """The models the user may choose from, by provider: those that the preset of
        the conversation allows. A new one may still get any preset."""
        models = router.available(self.user).order_by("provider__name", "name")
        preset = self.conversation.preset if self.conversation else None
        return allowed_by(preset, models)

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

    @property
    def has_only_demo(self) -> bool:
        return bool(self.models) and all(
            m.provider.kind == DEMO.name for m in self.models
        )

    def default_model(self, preset: Preset | None) -> LanguageModel | None:
        """The model of a turn that does not name one."""
        models = allowed_by(preset, self.models)
        used = self._last_model or self._conversation_model(preset)
        if used is None and self.conversation is None:
            used = self._default_model_of_user or self._last_chosen_model
        if used is not None and used.retires_at:
            used = used.current_for(self.user)
        if used in models:
            return used
        default = (model for model in models if model.is_default)
        return next(default, None) or self._other_default(models)

    def _other_default(self, models: list[LanguageModel]) -> LanguageModel | None:
        """Without a default model: the replacement of a retired one, or the first."""
        if not models:
            return None
        found = router.find_model(None, user=self.user)
        return found if found.stands_in_for and found in models else models[0]

    @property
    def retirement(self) -> Retirement | None:
        """What to say of the chosen model, if it is retired or will be."""
        chosen = self.chosen
        if chosen is None:
            return None
        if chosen.stands_in_for is not None:
            return Retirement(chosen.stands_in_for, chosen)
        if chosen.retires_at is None:
            return None
        rows = (row for row in self.models if row.pk == chosen.replacement_id)
        return Retirement(chosen, next(rows, None))

    @cached_property
    def _default_model_of_user(self) -> LanguageModel | None:
        chosen = UserSettings.objects.for_user(self.user.pk).default_model_id
        known = next((model for model in self.models if model.pk == chosen), None)
        if known is not None or chosen is None:
            return known
        rows = LanguageModel.objects.available_to(self.user)
        return rows.select_related("provider").filter(pk=chosen).first()

    @cached_property
    def _last_chosen_model(self) -> LanguageModel | None:
        """The model of the user's latest message in a conversation without a preset."""
        rows = Conversation.objects.of(self.user).kept().filter(preset=None)
        latest = rows.order_by("-updated_at", "-pk").first()
        if latest is None:
            return None
        turns = latest.turns.filter(access_token=None).select_related("language_model")
        turn = turns.order_by("-created_at", "-pk").first()
        return turn.language_model if turn else None

    def _conversation_model(self, preset: Preset | None) -> LanguageModel | None:
        if self.conversation:
            return self.conversation.usual_model
        folder = self.chosen_folder
        folder_model = folder.language_model if folder else None
        return folder_model or (preset.language_model if preset else None)

    @property
    def chosen_folder(self) -> Folder | None:
        return self.conversation.folder if self.conversation else None

    def clean_model(self) -> LanguageModel:
        if self.chosen is None:
            raise forms.ValidationError(
                _("No model is available yet; ask the staff to set one up.")
            )
        name = self.cleaned_data["model"]
        model = self._find_model(name) if name else self.chosen
        if model and allowed_by(self.chosen_preset, [model]):
            return model
        if model:
            raise forms.ValidationError(
                _("The preset does not allow the model “%(name)s”; choose another."),
                params={"name": str(model)},
            )
        raise forms.ValidationError(
            _("The model “%(name)s” is not available; choose another one."),
            params={"name": name[:100]},
        )

    def renew_key(self) -> None:
        """For the page that shows the form again: with its key it would be refused."""
        given: Any = self.data
        data = given.copy()
        data["key"] = uuid.uuid4().hex
        self.data = data

    def refuse(self, refusal: TooFast) -> None:
        self.refusal = refusal
        self.add_error(None, text_for_reader(refusal))

    @abstractmethod
    def items(self) -> list[ItemPayload]:
        """The input items of the turn."""

    @notes_refusals
    def open_turn(self) -> Turn:
        """Open the turn, once for each key, and submit it to the engine.

        Raises UploadRefused where other uploads have used up the quota meanwhile,
        TooFast where the user has used too many tokens, ToolNotAllowed where the
        conversation's options declare tools that the user may not use, MessageRemoved
        where the message was sent and then removed from the queue.
        """
        items = self.items()
        turn, _is_new = self._get_or_open(items, self._key(items))
        engine.submit(turn.pk, turn.conversation_id, owner=self.user.pk)
        return turn

    def _size_of_new_files(self) -> int:
        """Bytes of the files that come with the form."""
        return 0

    def _get_or_open(self, items: list[ItemPayload], key: str) -> tuple[Turn, bool]:
        """The turn with the key, and whether it is new."""
        size = self._size_of_new_files()
        return IdempotencyKey.objects.get_or_open(
            self.user,
            key,
            KEY_FINGERPRINT,
            open_turn=partial(self._open, items),
            admit=partial(admit_message, self.user.pk, None, items, size),
        )

    def _find_model(self, name: str) -> LanguageModel | None:
        known = next((m for m in self.models if m.public_name == name), None)
        if known is not None or not name:
            return known
        # A page may have been opened before the model was retired.
        try:
            found = router.find_model(name, user=self.user)
        except ModelNotAvailable:
            return None
        return found if found.stands_in_for and found in self.models else None

    def _open(self, items: list[ItemPayload]) -> Turn:
        overload.check_room()
        maintenance.check_open()
        check_user_tokens_available(self.user, estimate_tokens("", items))
        with transaction.atomic():
            check_inline_quota(self.user.pk, items)
            conversation = self._get_conversation()
            check_declared_kinds(conversation.options_for(self.user), self.user)
            return self._open_turn_in(conversation, items)

    @abstractmethod
    def _get_conversation(self) -> Conversation:
        """The conversation of the turn; creates one if there is none."""

    def _open_turn_in(
        self, conversation: Conversation, items: list[ItemPayload]
    ) -> Turn:
        model = self.cleaned_data["model"]
        when: waiting_messages.When = self.cleaned_data["when"] or "queue"
        opened = waiting_messages.open_message(
            conversation,
            items,
            when,
            language_model=model,
            author=self.user,
            **self._place(),
        )
        notify_running_turn(opened)
        return opened.turn

    def _place(self) -> dict[str, Any]:
        """Where the turn goes in the tree; by default at the end of the branch that the
        user looks at."""
        return {}

    def _content_to_hash(self, items: list[ItemPayload]) -> list[Any]:
        return [item["content"] for item in items]

    def _key(self, items: list[ItemPayload]) -> str:
        """The idempotency key. It contains a hash of what is sent, because the form's
        key is one for a page, which may send several different messages."""
        key = self.cleaned_data["key"] or uuid.uuid4().hex
        conversation_id = self.conversation.pk if self.conversation else ""
        content = [conversation_id, *self._content_to_hash(items)]
        return f"page:{key}:{hashlib.sha256(repr(content).encode()).hexdigest()[:32]}"
