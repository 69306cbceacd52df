"""The form that asks a turn's question again."""

from __future__ import annotations

from typing import Any

from conversations.models import (
    Conversation,
    Turn,
)
from conversations.models.preset import Preset
from conversations.pages.forms.turn_form import TurnForm
from conversations.turns.branches import place_beside, question_items
from llm.models import LanguageModel
from llm.wire.items import Item as ItemPayload


class RetryForm(TurnForm):
    """Ask a turn's question again, with the model that the picker shows."""

    def __init__(self, data: Any, *, turn: Turn, user: Any) -> None:
        super().__init__(data, user=user, conversation=turn.conversation)
        self._turn = turn

    def items(self) -> list[ItemPayload]:
        return question_items(self._turn)

    def default_model(self, preset: Preset | None) -> LanguageModel | None:
        used = self._turn.language_model
        return used if used in self.models else super().default_model(preset)

    def _get_conversation(self) -> Conversation:
        return self._turn.conversation

    def _place(self) -> dict[str, Any]:
        return place_beside(self._turn)

    def _content_to_hash(self, items: list[ItemPayload]) -> list[Any]:
        model = self.cleaned_data["model"].pk
        return [self._turn.pk, model, *super()._content_to_hash(items)]
