"""Keys that are stored elsewhere: `env:NAME` and `file:/run/secrets/name`.

A reference is stored like a key, encrypted and bound to the provider's origin; the key
itself is read at each use, so a rotated file counts at once. Only names and folders
that the settings permit can be named: otherwise the permission to enter keys would be
one to read all that the server can read.
"""

from __future__ import annotations

import hashlib
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path

from django.utils.translation import gettext as _

from llm.conf import settings

MAX_FILE = 64 * 1024  # bytes
MAX_HINT = 20  # characters, the size of the column
_FINGERPRINT = 12  # hexadecimal digits
_MIN_FINGERPRINTED = 16  # characters; of a shorter text it would help to guess it
_REFERENCE = re.compile(r"(env|file):(.+)", re.DOTALL)
#: Of other texts, which may be mistyped secrets, hints reveal no more than of keys.
_PLAIN_REFERENCE = re.compile(r"env:[A-Z_][A-Z0-9_]*|file:/[\w./-]+")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_VALID_KEY = re.compile(r"[\x21-\x7e]+")


class ReferenceRefused(Exception):
    """The key is not there, or may not be read; the message does not quote it."""


def show_reference(text: str) -> str:
    """For people: the reference, or only its kind if it may be a mistyped secret."""
    if not is_reference(text) or _PLAIN_REFERENCE.fullmatch(text):
        return text
    return f"{text.partition(':')[0]}:…"


def is_reference(text: str) -> bool:
    return _REFERENCE.fullmatch(text) is not None


def read_reference(text: str) -> str:
    """The key that the reference names. Raises ReferenceRefused."""
    found = _REFERENCE.fullmatch(text)
    assert found
    kind, name = found.groups()
    key = (_read_variable(name) if kind == "env" else _read_file(name)).strip()
    if not key:
        raise ReferenceRefused(_("%(name)s is empty.") % {"name": text})
    # A service account's key is JSON, which is compacted before it is sent.
    if not _VALID_KEY.fullmatch(key) and not key.startswith("{"):
        words = _("%(name)s contains spaces or non-ASCII characters.")
        raise ReferenceRefused(words % {"name": text})
    return key


def _read_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):  # perhaps a secret, which is not quoted
        raise ReferenceRefused(_("No name of a variable follows “env:”."))
    patterns = settings.KEY_VARIABLES
    if not any(fnmatchcase(name, pattern) for pattern in patterns):
        words = _(
            "The environment variable %(name)s may not be used as a key; KEY_VARIABLES"
            " permits those that fit %(patterns)s."
        )
        joined = ", ".join(patterns) or _("nothing")
        raise ReferenceRefused(words % {"name": name, "patterns": joined})
    if name not in os.environ:
        words = _("The environment variable %(name)s is not set.")
        raise ReferenceRefused(words % {"name": name})
    return os.environ[name]


def _read_file(name: str) -> str:
    folders = [Path(folder).resolve() for folder in settings.KEY_FOLDERS]
    try:
        path = Path(name).resolve()  # links too: what they lead to must be permitted
        if not any(path.is_relative_to(folder) for folder in folders):
            joined = ", ".join(map(str, folders)) or _("nothing")
            words = _("%(name)s may not be read; KEY_FOLDERS permits %(folders)s.")
            raise ReferenceRefused(words % {"name": name, "folders": joined})
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise ReferenceRefused(_("%(name)s is too large.") % {"name": name})
        return data.decode()
    except (OSError, ValueError) as exc:
        words = _("%(name)s cannot be read (%(why)s).")
        why = type(exc).__name__
        raise ReferenceRefused(words % {"name": name, "why": why}) from exc


def hint_of_reference(text: str) -> str:
    """The reference, which is no secret, or its end if it is long; "" if it may be
    something else."""
    if not _PLAIN_REFERENCE.fullmatch(text):
        return ""
    if len(text) <= MAX_HINT:
        return text
    kind = text.partition(":")[0]
    return f"{kind}:…{text[len(kind) + 2 - MAX_HINT :]}"


def fingerprint_of(text: str) -> str:
    """Of a key; "" for a short one, and for a reference."""
    if len(text) < _MIN_FINGERPRINTED or is_reference(text):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT]
