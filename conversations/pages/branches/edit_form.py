"""The form that asks a question again with other words."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from conversations.models import Turn
from conversations.pages.forms.message_form import LINE_END
from conversations.pages.forms.retry_form import RetryForm
from conversations.turns.attachments import attachment_ids
from conversations.turns.branches import edited_items, question_items
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of


class EditForm(RetryForm):
    """The question becomes a turn beside the first one, which stays as it is."""

    text = forms.CharField(required=False, strip=False)
    #: Ids of the files that the message keeps.
    keep = forms.Field(required=False)

    def __init__(self, data: Any, *, turn: Turn, user: Any) -> None:
        super().__init__(data, turn=turn, user=user)
        self.turn = turn

    @cached_property
    def question(self) -> ItemPayload:
        return question_items(self.turn)[-1]

    @property
    def old_text(self) -> str:
        return "".join(text_of(self.question))

    @cached_property
    def stored_files(self) -> list[tuple[str, str]]:
        """Ids and names of the question's files."""
        ids = attachment_ids([self.question])
        rows = self.turn.conversation.attachments.in_bulk(ids)
        return [(pk, rows[pk].name) for pk in ids if pk in rows]

    def clean_keep(self) -> list[str]:
        data: Any = self.data
        chosen = set(data.getlist("keep"))
        return [pk for pk, _name in self.stored_files if pk in chosen]

    def clean_text(self) -> str:
        text = LINE_END.sub("\n", self.cleaned_data["text"])
        if len(text.encode()) > settings.MAX_INPUT_SIZE:
            raise forms.ValidationError(
                _("The message is too long: the limit is %(limit)s bytes."),
                params={"limit": settings.MAX_INPUT_SIZE},
            )
        return text

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if not self.errors and not data["text"].strip() and not data.get("keep"):
            self.add_error("text", _("Write a message first."))
        return data

    def items(self) -> list[ItemPayload]:
        data = self.cleaned_data
        return edited_items(self.turn, data["text"], data["keep"])
