"""The original parts of an answer, for sending them back to Gemini."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llm.errors import BadResponse
from llm.wire.sanitize import sanitize_text

Part = dict[str, Any]
MAX_PARTS = 2_000  # of one item; pieces of a text without a signature are one part


class Parts:
    """The parts of one item. Pieces of one text become one part; a signature ends the
    part that it is on."""

    __slots__ = ("_texts", "_whole")

    def __init__(self) -> None:
        self._whole: list[Part] = []
        self._texts: list[str] = []  # of the last part, while it can be extended

    def add(self, part: Part) -> None:
        """Add a part, unless it is an empty text without a signature. Raises
        BadResponse if there are too many."""
        text, signed = part.get("text"), bool(part.get("thoughtSignature"))
        if text == "" and not signed:
            return
        if self._texts and not signed and _goes_on(self._whole[-1], part):
            self._texts.append(part["text"])
            return
        self._join()
        if len(self._whole) >= MAX_PARTS:
            raise BadResponse(detail=f"More than {MAX_PARTS:,} parts in one item.")
        self._whole.append(part)
        self._texts = [] if text is None or signed else [text]

    def whole(self) -> list[Part]:
        """The parts so far, as a list that later parts do not change."""
        self._join()
        return list(self._whole)

    def is_plain(self) -> bool:
        """Whether no part has anything but text."""
        return all(part.keys() == {"text"} for part in self._whole)

    def text(self) -> str:
        return "".join(part.get("text") or "" for part in self.whole())

    def _join(self) -> None:
        if self._texts:
            text = sanitize_text("".join(self._texts))
            self._whole[-1] = {**self._whole[-1], "text": text}


def merge_parts(parts: Iterable[Part]) -> list[Part]:
    """`parts`, with pieces of one text joined."""
    whole = Parts()
    for part in parts:
        whole.add(part)
    return whole.whole()


def _goes_on(last: Part, part: Part) -> bool:
    if "text" not in part or last.keys() != part.keys():
        return False
    if len(part) == 1:
        return True
    return all(last[name] == part[name] for name in last if name != "text")
