"""The admin's form of a provider, with its secret headers and its quirks."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.html import escape, format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from llm.forms.fields import SwitchesForm
from llm.forms.secret_headers import HeaderLinesField
from llm.wire.codecs.openai_chat.quirks import QUIRKS

PREFIX = "quirk_"
QUIRK_FIELDS: Any = [f"{PREFIX}{name}" for name in QUIRKS]
#: What the switches say, for the catalogue.
QUIRK_TEXTS = (
    gettext_noop("the limit of output tokens is sent as max_completion_tokens"),
    gettext_noop("token counts of a stream are requested by stream_options"),
    gettext_noop("instructions have the role developer"),
    gettext_noop("all instructions are one message, in front"),
    gettext_noop("images may be sent as addresses"),
    gettext_noop("files may be sent"),
    gettext_noop("tool_choice may be sent"),
    gettext_noop("strict may be sent with a tool"),
    gettext_noop("references in schemas are expanded"),
    gettext_noop("reasoning arrives in the text, between <think> tags"),
    gettext_noop(
        "the text begins with reasoning, up to </think>; the prompt has <think>"
    ),
)
_CHOICES = [("", _("as usual")), ("on", _("yes")), ("off", _("no"))]


class _QuirkFields(type(forms.ModelForm)):  # type: ignore[misc]
    """Adds a field for each quirk to a form's class, as the admin wants it."""

    def __new__(cls, name: str, bases: Any, attributes: Any, **kwargs: Any) -> Any:
        own = {
            f"{PREFIX}{key}": forms.ChoiceField(
                choices=_CHOICES,
                required=False,
                label=key.replace("_", " "),
                help_text=escape(_(quirk.description)),
            )
            for key, quirk in QUIRKS.items()
        }
        return super().__new__(cls, name, bases, {**own, **attributes}, **kwargs)


class ProviderForm(SwitchesForm, metaclass=_QuirkFields):
    secret = HeaderLinesField(
        label=_("Secret headers"),
        required=False,
        help_text=_(
            "One per line, such as “X-Gateway-Token: …”; stored encrypted, never shown"
            " again, and sent to this address only. Headers that you do not list keep"
            " their values; a name without a value is removed."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._show_headers()
        options = self.instance.options
        self._quirks = options.get("quirks", {}) if isinstance(options, dict) else {}
        if "options" in self.fields and self._quirks:
            shown = {n: v for n, v in options.items() if n != "quirks"}
            self.initial["options"] = shown
        for name in QUIRKS:
            if isinstance(self._quirks, dict) and name in self._quirks:
                is_on = self._quirks[name]
                self.initial[f"{PREFIX}{name}"] = "on" if is_on else "off"

    def _show_headers(self) -> None:
        # A user with only the view permission has no field for them.
        if "secret" not in self.fields or not self.instance.secret_names:
            return
        field = self.fields["secret"]
        names = ", ".join(self.instance.secret_names)
        known = _("Currently set: %(names)s.") % {"names": names}
        why = self.instance.why_headers_not_sent
        warning = format_html('<strong class="tool-bad">{}</strong>', why)
        field.help_text = format_html("{} {} {}", field.help_text, known, warning)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        switches = {
            name: cleaned[f"{PREFIX}{name}"] == "on"
            for name in QUIRKS
            if cleaned.get(f"{PREFIX}{name}")
        }
        options = cleaned.get("options")
        if switches and (isinstance(options, dict) or not options):
            cleaned["options"] = {**(options or {}), "quirks": switches}
        return cleaned

    def save(self, commit: bool = True) -> Any:
        # Now the address is the new one: stored headers are not sent to another origin.
        if headers := self.cleaned_data.get("secret"):
            self.instance.set_secret_headers(headers)
        return super().save(commit)
