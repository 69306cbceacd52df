"""The parts that an answer is made of, as they go back to Gemini."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Part = dict[str, Any]


def merged(parts: Iterable[Part]) -> list[Part]:
    """Pieces of one text as one part; a signature ends the part that it is on.

    An empty text without a signature says nothing.
    """
    whole: list[Part] = []
    texts: list[str] = []  # of the last part, while it may go on
    for part in parts:
        signed = bool(part.get("thoughtSignature"))
        if "text" in part and not part["text"] and not signed:
            continue
        if texts and not signed and _goes_on(whole[-1], part):
            texts.append(part["text"])
            continue
        _join(whole, texts)
        whole.append(part)
        texts = [part["text"]] if "text" in part and not signed else []
    _join(whole, texts)
    return whole


def is_plain(parts: Iterable[Part]) -> bool:
    """True where the text alone says all that was said."""
    return all(part.keys() == {"text"} for part in parts)


def _join(whole: list[Part], texts: list[str]) -> None:
    if texts:
        whole[-1] = {**whole[-1], "text": _mended("".join(texts))}


def _goes_on(last: Part, part: Part) -> bool:
    if "text" not in part or last.keys() != part.keys():
        return False
    return all(last[name] == part[name] for name in last if name != "text")


def _mended(text: str) -> str:
    """Without halves of surrogate pairs, which no database takes."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
