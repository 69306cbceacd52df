"""Validators of provider addresses, options and headers."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from llm.cache.cache_seconds import are_valid_seconds
from llm.generation.retry_policy import Policy
from llm.wire.facades.common_shape import MAX_CACHE_SECONDS
from llm.wire.header_syntax import HEADER_NAME, HEADER_VALUE

_SECRET_HEADER = re.compile(r"auth|key|token|secret|password|cookie", re.IGNORECASE)

#: Headers that only the HTTP client may set. Another Host, for example, could send the
#: key to another customer whose server has the same address.
_CONNECTION_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "upgrade"}
)


def validate_address(text: str) -> None:
    """An http or https URL to which paths can be appended; also a proxy's.

    Not Django's URLField: hosts in a private network have names without dots.
    """
    try:
        url = urlsplit(text)
        host, _port = url.hostname, url.port
    except ValueError as exc:
        raise ValidationError(_("This is not a URL.")) from exc
    if url.scheme not in ("http", "https") or not host or re.search(r"\s", text):
        raise ValidationError(
            _("Write an address that begins with http:// or https://.")
        )
    if url.username is not None or url.password is not None:
        raise ValidationError(
            _(
                "Leave out user and password; a provider's are stored as an API key, a"
                " proxy must do without."
            )
        )
    if "?" in text or "#" in text:
        raise ValidationError(_("Leave out the part after the path."))


def validate_certificates(text: str) -> None:
    """Certificates in PEM, without a private key."""
    if "PRIVATE KEY" in text:
        raise ValidationError(_("Leave out the private key; it would be shown here."))
    try:
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as exc:
        raise ValidationError(
            _("Write certificates in PEM, which begin with BEGIN CERTIFICATE.")
        ) from exc


def validate_object(value: Any) -> None:
    if not isinstance(value, dict):
        raise ValidationError(_('Write a JSON object, such as {"name": "value"}.'))
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise ValidationError(
            _("This contains a value that JSON does not allow.")
        ) from exc


def validate_headers(headers: Any) -> None:
    """HTTP headers, which are stored unencrypted: none may be a secret."""
    validate_header_syntax(headers)
    for name in headers:
        if _SECRET_HEADER.search(name):
            raise ValidationError(
                _("The header %(name)r is a secret; enter it as a secret header."),
                params={"name": name},
            )


def validate_header_syntax(headers: Any) -> None:
    if not isinstance(headers, dict):
        raise ValidationError(_('"headers" must be an object of names and strings.'))
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValidationError(
                _("%(name)r is not a valid header name."), params={"name": name}
            )
        if not isinstance(value, str) or not HEADER_VALUE.fullmatch(value):
            raise ValidationError(
                _("The header %(name)r must be one line of plain text."),
                params={"name": name},
            )
        if name.lower() in _CONNECTION_HEADERS:
            raise ValidationError(
                _("The header %(name)r is set by the server itself."),
                params={"name": name},
            )


def validate_model_options(options: Any, known: Collection[str]) -> None:
    """The default options of a model's requests, its policy under "retry", and how
    long its answers are cached."""
    if not isinstance(options, dict):
        return  # reported by `validate_object`
    known = {*known, "cache_seconds", "retry"}
    if unknown := set(options) - known:
        raise ValidationError(
            _("Unknown: %(unknown)s. Use %(known)s."),
            params={
                "unknown": ", ".join(sorted(unknown)),
                "known": ", ".join(sorted(known)),
            },
        )
    try:
        Policy.read(options.get("retry"))
    except ValueError as exc:
        raise ValidationError(str(exc)) from exc
    if not are_valid_seconds(options.get("cache_seconds", 0)):
        raise ValidationError(
            _('"cache_seconds" must be a whole number from 0 to %(most)s.'),
            params={"most": MAX_CACHE_SECONDS},
        )
