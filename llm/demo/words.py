"""Split text into the words in which the demo streams and counts. Pure."""

from __future__ import annotations

import re

# Text without spaces (Chinese, a data URL) is split after 24 characters.
_WORD = re.compile(r"\s*\S{1,24}|\s+\Z")
_PIECE = re.compile(r"\w{1,24}|[^\w]{1,24}")


def words(text: str) -> list[str]:
    """The words of `text`; joined they are `text` again."""
    return _WORD.findall(text)


def pieces(json: str) -> list[str]:
    """The fragments in which a call's arguments are streamed."""
    return _PIECE.findall(json)
