"""The demo speaks, and counts, by the word. Pure."""

from __future__ import annotations

import re

# A text without spaces (Chinese, a data URL) is spoken in pieces all the same.
_WORD = re.compile(r"\s*\S{1,24}|\s+\Z")
_PIECE = re.compile(r"\w{1,24}|[^\w]{1,24}")


def words(text: str) -> list[str]:
    """The pieces of `text` as they are streamed; joined they are `text` again."""
    return _WORD.findall(text)


def pieces(json: str) -> list[str]:
    """The fragments in which the arguments of a call are streamed."""
    return _PIECE.findall(json)
