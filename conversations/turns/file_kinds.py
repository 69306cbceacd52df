"""File types detected from the content, and safe file names. Pure.

The declared type is never trusted: a file declared as `image/png` may be a page with
scripts. All text is `text/plain`, SVG and HTML too, so that no browser executes it.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from pathlib import PurePosixPath

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from llm.wire.text import encoding

PDF = "application/pdf"
TEXT = "text/plain"
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

NAME_LENGTH = 100  # characters

_SUFFIXES = {
    "image/png": {".png"},
    "image/jpeg": {".jpg", ".jpeg"},
    "image/gif": {".gif"},
    "image/webp": {".webp"},
    PDF: {".pdf"},
}
#: Control characters that text files do not contain: all except tab, line feed, form
#: feed, carriage return and escape.
_BINARY = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def content_type_of(data: bytes) -> str | None:
    """One of IMAGES, PDF or TEXT; None for what models cannot read."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"%PDF-"):
        return PDF
    return TEXT if decode_text(data) is not None else None


def decode_text(data: bytes) -> str | None:
    """`data` as text, in whichever encoding it is. None if not text."""
    text = encoding.decode_text(data.removeprefix(codecs.BOM_UTF8))
    return None if text is None or _BINARY.search(text) else text


def clean_name(name: str, content_type: str) -> str:
    """The last part of a path, without control characters, marks that change the
    writing direction, and a suffix that belongs to another type of file."""
    name = unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]
    name = "".join(" " if c.isspace() else c for c in name if _is_visible(c))
    name = " ".join(name.split()).lstrip(". ") or "file"
    stem, suffix = PurePosixPath(name).stem, PurePosixPath(name).suffix[:20]
    if content_type in _SUFFIXES and suffix.lower() not in _SUFFIXES[content_type]:
        stem, suffix = name, min(_SUFFIXES[content_type])
    return f"{stem[: NAME_LENGTH - len(suffix)]}{suffix}"


def _is_visible(character: str) -> bool:
    return character.isspace() or unicodedata.category(character)[0] != "C"


def format_size(size: int) -> str:
    """`640 bytes`, `12 kB`, `3.4 MB`; static/js/files.js formats sizes the same way."""
    if size >= 10**9:
        return _("%(size)s GB") % {"size": _short(size / 10**9)}
    if size >= 10**6:
        return _("%(size)s MB") % {"size": _short(size / 10**6)}
    if size >= 10**3:
        return _("%(size)s kB") % {"size": _short(size / 10**3)}
    return ngettext("%(size)s byte", "%(size)s bytes", size) % {"size": size}


def _short(number: float) -> str:
    rounded = round(number, 1)
    return number_format(rounded, 0 if rounded == int(rounded) else 1)
