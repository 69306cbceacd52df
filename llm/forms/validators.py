from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from llm.generation.retry_policy import Policy
from llm.wire.header_syntax import HEADER_NAME, HEADER_VALUE

_SECRET_HEADER = re.compile(r"auth|key|token|secret|password|cookie", re.IGNORECASE)

#: Another Host header could send the key to another tenant of the same address.
_CONNECTION_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "upgrade"}
)


def validate_address(text: str) -> None:
    """An http or https URL to which paths can be appended.

    Not Django's URLField: hosts in a private network have names without dots.
    """
    try:
        url = urlsplit(text)
        host, _port = url.hostname, url.port
    except ValueError as exc:
        raise ValidationError(_("This is no address.")) from exc
    if url.scheme not in ("http", "https") or not host or re.search(r"\s", text):
        raise ValidationError(_("Write an address such as https://host/v1."))
    if url.username is not None or url.password is not None:
        raise ValidationError(_("Leave out user and password; make an API key."))
    if "?" in text or "#" in text:
        raise ValidationError(_("Leave out what follows the path."))


def validate_object(value: Any) -> None:
    if not isinstance(value, dict):
        raise ValidationError(_('Write a JSON object, such as {"name": "value"}.'))
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise ValidationError(
            _("This holds something that JSON has no word for.")
        ) from exc


def validate_headers(headers: Any) -> None:
    """HTTP headers, which are stored unencrypted: none may be a secret."""
    if not isinstance(headers, dict):
        raise ValidationError(_('"headers" must be an object of names and texts.'))
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValidationError(
                _("%(name)r is no header's name."), params={"name": name}
            )
        if not isinstance(value, str) or not HEADER_VALUE.fullmatch(value):
            raise ValidationError(
                _("The header %(name)r must be a line of plain text."),
                params={"name": name},
            )
        if name.lower() in _CONNECTION_HEADERS:
            raise ValidationError(
                _("The header %(name)r is set by the server itself."),
                params={"name": name},
            )
        if _SECRET_HEADER.search(name):
            raise ValidationError(
                _("The header %(name)r is a secret; store it as an API key."),
                params={"name": name},
            )


def validate_model_options(options: Any, known: Collection[str]) -> None:
    """The default options of a model's requests, and its policy under "retry"."""
    if not isinstance(options, dict):
        return  # reported by `validate_object`
    if unknown := set(options) - {*known, "retry"}:
        raise ValidationError(
            _("Unknown: %(unknown)s. There are %(known)s."),
            params={
                "unknown": ", ".join(sorted(unknown)),
                "known": ", ".join(sorted({*known, "retry"})),
            },
        )
    try:
        Policy.read(options.get("retry"))
    except ValueError as exc:
        raise ValidationError(str(exc)) from exc
