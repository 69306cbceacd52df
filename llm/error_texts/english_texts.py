"""Translation of texts that are stored in English, such as the errors of turns.

Programs read the English text. For people, it is found again by its wording among the
texts that this server writes. A text may have places (`%(model)s`); the translation is
filled with what stood there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from django.utils.translation import gettext

_PLACE = re.compile(r"%\((\w+)\)s")
_MIN_LEFT = 8  # characters after the last place of a text that is cut off


class EnglishTexts:
    """The `texts` that this server may have stored, as `gettext` knows them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = dict.fromkeys(texts)  # in their order

    def translate(self, message: str) -> str:
        """The message in the active language if it is one of the texts; else ""."""
        if message in self._texts:
            return gettext(message)
        for text, pattern in self._patterns:
            if found := pattern.fullmatch(message):
                return gettext(text) % found.groupdict()
        return ""

    def translate_cut(self, message: str) -> str:
        """The whole text of a message whose end is cut off, in the active language; ""
        if it is none of the texts, or too little is left to know which."""
        found = [whole for each in self._texts if (whole := _complete(each, message))]
        return self.translate(found[0]) if len(found) == 1 else ""

    @cached_property
    def _patterns(self) -> list[tuple[str, re.Pattern[str]]]:
        """The texts with places, each with a pattern of what it becomes."""
        return [(text, _pattern_of(text)) for text in self._texts if "%(" in text]


def _complete(text: str, message: str) -> str:
    """`message` with the end of `text`, if it is the beginning of it; else ""."""
    end, pattern = _PLACE.split(text)[-1], _pattern_of(text)
    for left in range(len(end) - 1, _MIN_LEFT - 1, -1):
        if message.endswith(end[:left]):
            whole = message + end[left:]
            return whole if pattern.fullmatch(whole) else ""
    return ""


def _pattern_of(text: str) -> re.Pattern[str]:
    pieces = _PLACE.split(text)  # texts and names in turn
    return re.compile(
        "".join(
            f"(?P<{piece}>.+?)" if number % 2 else re.escape(piece)
            for number, piece in enumerate(pieces)
        ),
        re.DOTALL,
    )
