"""Why a file cannot be accepted."""

from __future__ import annotations

from django.utils.translation import gettext as _


class UploadRefused(Exception):
    """A file cannot be accepted; the message says why and what to do."""

    def __init__(self, problem: str, code: str, status: int = 400) -> None:
        super().__init__(problem)
        self.code = code
        self.status = status  # of HTTP


def unsupported(name: str) -> UploadRefused:
    words = _(
        "“%(name)s” has a type that models cannot read. Send PNG, JPEG, WebP and GIF"
        " pictures, PDF, Word, Excel and PowerPoint files, and text files."
    )
    return UploadRefused(words % {"name": name}, "unsupported_file", 415)
