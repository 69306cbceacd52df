"""The form that renames a conversation."""

from __future__ import annotations

from typing import Any

from django import forms

from conversations.models import (
    Conversation,
    TitleSource,
)


class TitleForm(forms.ModelForm):
    class Meta:
        model = Conversation
        fields = ["title"]
        widgets = {"title": forms.TextInput(attrs={"autocomplete": "off"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["title"].required = True

    def save(self, commit: bool = True) -> Any:
        self.instance.title_source = TitleSource.PERSON
        self.instance.save(update_fields=["title", "title_source"])
        return self.instance
