"""Forms by which staff correct items and the options of turns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from conversations.input.checks import InputError
from conversations.input.items import options_of
from conversations.models import Item, Turn
from conversations.staff.item_text_corrections import (
    ItemText,
    apply_corrections,
    item_texts,
)
from llm.forms.fields import StrictJSONField

_CHANGED_MEANWHILE = _(
    "Others have changed this meanwhile. Open the page again, and enter your change"
    " anew."
)


class _Indented(json.JSONEncoder):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "indent": 2})


class IndentedObjectField(StrictJSONField):
    """A JSON object, indented."""

    widget = forms.Textarea(attrs={"rows": 12, "cols": 100, "spellcheck": "false"})

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"encoder": _Indented, **kwargs})

    def to_python(self, value: Any) -> Any:
        value = super().to_python(value)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise forms.ValidationError(_("Enter a JSON object."))
        return value


class ItemTextField(forms.CharField):
    """One text of an item. CRLF from the browser does not count as a change."""

    widget = forms.Textarea(attrs={"rows": 6, "cols": 100, "dir": "auto"})

    def __init__(self, item_text: ItemText, **kwargs: Any) -> None:
        self.item_text = item_text
        super().__init__(
            label=item_text.label,
            initial=_normalize_line_ends(item_text.text),
            required=False,
            strip=False,
            **kwargs,
        )

    def to_python(self, value: Any) -> str:
        return _normalize_line_ends(super().to_python(value) or "")


def _normalize_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


class UnchangedSince(forms.ModelForm):
    """Refuses a page that is older than another person's change. It posts all values
    that it showed, and would restore what the change has redacted or limited."""

    seen = forms.CharField(widget=forms.HiddenInput, required=False)
    guarded: tuple[str, ...]  # columns of the model
    guarded_lists: tuple[str, ...] = ()  # fields of the model with many rows

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        shown = [getattr(self.instance, name) for name in self.guarded]
        self.initial["seen"] = self._digest(shown)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        rows = type(self.instance)._base_manager.select_for_update()
        stored = rows.values_list(*self.guarded).get(pk=self.instance.pk)
        if cleaned.pop("seen", "") != self._digest(stored):
            self.add_error(None, _CHANGED_MEANWHILE)
        return cleaned

    def _digest(self, values: Iterable[Any]) -> str:
        lists = [
            getattr(self.instance, name).order_by("pk") for name in self.guarded_lists
        ]
        keys = [list(rows.values_list("pk", flat=True)) for rows in lists]
        text = json.dumps([*values, *keys], sort_keys=True, default=str)
        return sha256(text.encode()).hexdigest()


class ItemForm(UnchangedSince):
    """One field for each text of an item, and the whole item as JSON. `item_form`
    creates the subclass for an item."""

    payload = IndentedObjectField(label=_("JSON"))
    guarded = ("payload",)

    class Meta:
        model = Item
        fields = ["payload"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if "payload" in cleaned:
            try:
                cleaned["payload"] = apply_corrections(
                    self.initial["payload"], cleaned["payload"], self._texts(cleaned)
                )
            except ValueError as exc:
                self.add_error("payload", str(exc))
        return cleaned

    def _texts(self, cleaned: dict[str, Any]) -> dict[Any, str]:
        return {
            field.item_text.path: cleaned[name]
            for name, field in self.fields.items()
            if isinstance(field, ItemTextField) and name in self.changed_data
        }


def text_fields(item: Item) -> dict[str, ItemTextField]:
    return {
        f"text_{number}": ItemTextField(item_text)
        for number, item_text in enumerate(item_texts(item.payload))
    }


def item_form(item: Item) -> type[ItemForm]:
    return type("ItemForm", (ItemForm,), text_fields(item))


class TurnOptionsForm(UnchangedSince):
    options = IndentedObjectField(required=False)
    guarded = ("options",)

    class Meta:
        model = Turn
        fields = ["options"]

    def clean_options(self) -> dict[str, Any]:
        try:
            return options_of(self.cleaned_data["options"])
        except InputError as exc:
            raise forms.ValidationError(str(exc)) from exc
