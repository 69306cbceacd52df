"""The stored form `f2:` of a secret: AES-GCM, bound to a row, a column and an origin.

Format: `f2:<base64url of nonce and ciphertext>:<origin>`. The origin is readable, so
that a rotation can encrypt again for the same origin and the admin can show it; it is
part of the associated data, so that it cannot be changed. The key is derived from a key
of the ring (`settings.ENCRYPTION_KEYS`) by HKDF-SHA256.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import urlsplit
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PREFIX = "f2:"

_NONCE = 12  # bytes, as NIST SP 800-38D recommends
_PURPOSE = b"parley stored secret f2"
_USUAL_PORTS = {"http": 80, "https": 443}
_PLAIN_HOST = re.compile(r"[\w.:\[\]%-]+")


class SecretUnavailable(Exception):
    """No key of ENCRYPTION_KEYS decrypts a stored secret; restore the ring or enter the
    secret again."""


class OriginChanged(SecretUnavailable):
    """The secret was entered for another origin than the row has now; enter it
    again."""

    def __init__(self, origin: str) -> None:
        super().__init__()
        self.origin = origin  # the origin that it was entered for


@dataclass(frozen=True, slots=True)
class Binding:
    """The row, column and origin of a secret: it can be decrypted for nothing else."""

    row: UUID  # `SecretRow.secret_id`
    column: str  # "table.column" of the database
    origin: str  # where the secret is sent to: one `canonical_origin`, or several

    @property
    def associated_data(self) -> bytes:
        # No part may contain a line break, so no two bindings give the same bytes.
        return "\n".join([str(self.row), self.column, self.origin]).encode()


def canonical_origin(url: str) -> str:
    """Scheme, host and port of a URL, "" for no URL.

    A URL that parsers may read differently is its own origin as a whole.
    """
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return _one_line(url)
    if not host or not _PLAIN_HOST.fullmatch(parts.netloc):
        return _one_line(url)
    host = f"[{host}]" if ":" in host else host
    port = port or _USUAL_PORTS.get(parts.scheme)
    return f"{parts.scheme}://{host}:{port}"


def seal(text: str, binding: Binding, keys: Sequence[str]) -> str:
    """Encrypt under the first key."""
    nonce = os.urandom(_NONCE)
    cipher = _cipher(keys[0])
    sealed = cipher.encrypt(nonce, text.encode(), binding.associated_data)
    token = base64.urlsafe_b64encode(nonce + sealed).decode()
    return f"{PREFIX}{token}:{binding.origin}"


def unseal(stored: str, binding: Binding, keys: Sequence[str]) -> str:
    """Raises OriginChanged, SecretUnavailable."""
    token, origin = _parse(stored)
    for key in keys:
        if (text := _decrypt(token, replace(binding, origin=origin), key)) is None:
            continue
        if origin != binding.origin:
            raise OriginChanged(origin)
        return text
    raise SecretUnavailable


def origin_of(stored: str) -> str:
    """The origin that the secret was entered for. Raises SecretUnavailable."""
    return _parse(stored)[1]


def is_under(stored: str, binding: Binding, key: str) -> bool:
    """Whether exactly this key decrypts it. Raises SecretUnavailable."""
    token, origin = _parse(stored)
    return _decrypt(token, replace(binding, origin=origin), key) is not None


def _parse(stored: str) -> tuple[bytes, str]:
    text, colon, origin = stored.removeprefix(PREFIX).partition(":")
    if not stored.startswith(PREFIX) or not colon:
        raise SecretUnavailable
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True), origin
    except binascii.Error as exc:
        raise SecretUnavailable from exc


def _decrypt(token: bytes, binding: Binding, key: str) -> str | None:
    nonce, sealed = token[:_NONCE], token[_NONCE:]
    try:
        text = _cipher(key).decrypt(nonce, sealed, binding.associated_data)
    except (InvalidTag, ValueError):  # ValueError: too short to hold a nonce
        return None
    return text.decode()


@cache
def _cipher(key: str) -> AESGCM:
    kdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE)
    return AESGCM(kdf.derive(base64.urlsafe_b64decode(key)))


def _one_line(url: str) -> str:
    return url.encode("unicode_escape").decode()
