"""Texts of this server in the active language, found again by their English wording.

Errors are worded in English, for programs too, and stored so. A text may have places,
which are filled as they were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from django.utils.translation import gettext

_PLACE = re.compile(r"%\((\w+)\)s")


class WordedTexts:
    """`texts` are what a message may be; `shown_as` has, for some of them, the text to
    show in its place, with the same places."""

    def __init__(
        self, texts: Sequence[str], shown_as: Mapping[str, str] | None = None
    ) -> None:
        self._texts = frozenset(texts)
        self._shown_as = shown_as or {}

    def translate(self, message: str) -> str:
        """The message in the active language if it is one of the texts; else ""."""
        if message in self._texts:
            return gettext(self._shown_as.get(message, message))
        for text, pattern in self._patterns:
            if found := pattern.fullmatch(message):
                return gettext(self._shown_as.get(text, text)) % found.groupdict()
        return ""

    @cached_property
    def _patterns(self) -> list[tuple[str, re.Pattern[str]]]:
        """The texts with places, each with a pattern of what it becomes."""
        return [(text, _pattern_of(text)) for text in self._texts if "%(" in text]


def _pattern_of(text: str) -> re.Pattern[str]:
    pieces = _PLACE.split(text)  # texts and names in turn
    return re.compile(
        "".join(
            f"(?P<{piece}>.+?)" if number % 2 else re.escape(piece)
            for number, piece in enumerate(pieces)
        ),
        re.DOTALL,
    )
