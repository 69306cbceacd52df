"""The write-only form field for secret headers."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from llm.forms.validators import validate_header_syntax

#: HTML attributes of the text area.
_ATTRIBUTES = {
    "cols": 80,
    "rows": 3,
    "spellcheck": "false",
    "autocomplete": "off",
    "class": "vLargeTextField tool-code",
}


class SecretTextarea(forms.Textarea):
    """Renders no value, not even the one that was just submitted."""

    def format_value(self, value: Any) -> str:
        return ""


class HeaderLinesField(forms.CharField):
    """Lines such as `Authorization: Bearer …`, as a dict. Write-only."""

    widget = SecretTextarea(_ATTRIBUTES)

    def clean(self, value: Any) -> dict[str, str]:
        headers: dict[str, str] = {}
        for number, line in enumerate((value or "").splitlines(), start=1):
            name, colon, text = line.partition(":")
            if line.strip() and not colon:
                raise ValidationError(
                    _("Line %(line)d: write a name, a colon and a value."),
                    params={"line": number},
                )
            if colon:
                headers[name.strip()] = text.strip()
        self.check_headers(headers)
        return headers

    def check_headers(self, headers: dict[str, str]) -> None:
        """Raises ValidationError."""
        validate_header_syntax(headers)
