"""The parts that an answer is made of, as they go back to Gemini."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llm.wire.mending import mended

Part = dict[str, Any]


class Parts:
    """What one item is made of: pieces of one text are one part, and of a piece nothing
    but its text is kept. A signature ends the part that it is on."""

    __slots__ = ("_texts", "_whole")

    def __init__(self) -> None:
        self._whole: list[Part] = []
        self._texts: list[str] = []  # of the last part, while it may go on

    def add(self, part: Part) -> None:
        """An empty text without a signature says nothing."""
        text, signed = part.get("text"), bool(part.get("thoughtSignature"))
        if text == "" and not signed:
            return
        if self._texts and not signed and _goes_on(self._whole[-1], part):
            self._texts.append(part["text"])
            return
        self._join()
        self._whole.append(part)
        self._texts = [] if text is None or signed else [text]

    def whole(self) -> list[Part]:
        """So far. What is added later does not change it."""
        self._join()
        return list(self._whole)

    def is_plain(self) -> bool:
        """True where the text alone says all that was said."""
        return all(part.keys() == {"text"} for part in self._whole)

    def text(self) -> str:
        return "".join(part.get("text") or "" for part in self.whole())

    def _join(self) -> None:
        if self._texts:
            text = mended("".join(self._texts))
            self._whole[-1] = {**self._whole[-1], "text": text}


def merged(parts: Iterable[Part]) -> list[Part]:
    """`parts`, put together."""
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
