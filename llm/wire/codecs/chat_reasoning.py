"""The fields and shapes in which Chat Completions hosts send a model's reasoning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from llm.wire.mending import mended

#: Fields for plain text. A host that fills two of them repeats the same text.
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")
#: Fields that must be sent back unchanged; Copilot's and Venice's.
OPAQUE = ("reasoning_opaque", "reasoning_encrypted")
#: The same as lists of blocks: OpenRouter (Vercel, Snowflake) and LiteLLM.
BLOCKS = ("reasoning_details", "thinking_blocks")
THINKING = frozenset({*THOUGHTS, *OPAQUE, *BLOCKS})


def thought_of(message: dict[str, Any]) -> tuple[str, Literal["text", "summary"]]:
    """The reasoning text in a message or delta, and whether it is a summary."""
    text = ""
    for name in THOUGHTS:
        if (value := message.get(name)) and (text := words(value)):
            break
    blocks = blocks_of(message)
    if not blocks:
        return text, "text"
    summary = any(block.get("type") == "reasoning.summary" for _, block in blocks)
    return text or "".join(map(_block_words, blocks)), "summary" if summary else "text"


def blocks_of(message: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The reasoning blocks of a message, each with the name of its field."""
    return [
        (name, block)
        for name in BLOCKS
        if name in message
        for block in message[name] or ()
        if isinstance(block, dict)
    ]


def words(value: Any) -> str:
    """The text in a string, in an object, or in a list of either."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return words(value.get("text") or value.get("content"))
    if isinstance(value, list):
        return "".join(words(part) for part in value)
    return ""


def joined(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join pieces of reasoning blocks into the complete blocks that the host wants
    back.

    A piece extends the last block of its type and index; encrypted blocks are never
    split.
    """
    blocks: list[list[dict[str, Any]]] = []
    for piece in pieces:
        goes_on = (block for block in reversed(blocks) if _goes_on(block[-1], piece))
        if block := next(goes_on, None):
            block.append(piece)
        else:
            blocks.append([piece])
    return [_block(block) for block in blocks]


class ThinkTags:
    """Splits "<think>…</think>" off the beginning of an answer that arrives in
    pieces."""

    __slots__ = ("_held", "_state")

    def __init__(self) -> None:
        self._held = ""
        self._state: Literal["before", "inside", "gap", "after"] = "before"

    def feed(self, text: str) -> Iterator[tuple[bool, str]]:
        """Pieces of the text, each with whether it is reasoning."""
        text, self._held = self._held + text, ""
        if self._state == "before":
            head = text.lstrip()
            if len(head) < len("<think>") and "<think>".startswith(head):
                self._held = text
                return
            self._state = "inside" if head.startswith("<think>") else "after"
            text = head.removeprefix("<think>") if self._state == "inside" else text
        if self._state == "inside":
            thought, closing, text = text.partition("</think>")
            if not closing:
                keep = _overlap(thought, "</think>")
                self._held = thought[len(thought) - keep :]
                yield True, thought[: len(thought) - keep]
                return
            self._state = "gap"
            yield True, thought
        if self._state == "gap" and (text := text.lstrip()):
            self._state = "after"
        yield False, text

    def close(self) -> Iterator[tuple[bool, str]]:
        held, self._held = self._held, ""
        yield self._state == "inside", held


def _goes_on(last: dict[str, Any], piece: dict[str, Any]) -> bool:
    if piece.get("data") or last.get("data"):
        return False
    return all(last.get(name) == piece.get(name) for name in ("type", "index")) and (
        not piece.get("id") or last.get("id") in (None, piece["id"])
    )


def _block(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """One block: the texts joined, and the last non-empty value of other fields."""
    block = dict(pieces[0])
    if len(pieces) == 1:
        return block
    for piece in pieces[1:]:
        for name, value in piece.items():
            if value not in (None, "") or name not in block:
                block[name] = value
    for name in ("text", "summary", "thinking"):
        values = [piece[name] for piece in pieces if piece.get(name)]
        if all(isinstance(value, str) for value in values) and values:
            block[name] = mended("".join(values))
        elif values:  # Mistral's lists of text parts
            block[name] = [{"type": "text", "text": words(values)}]
    return block


def _block_words(named: tuple[str, dict[str, Any]]) -> str:
    _, block = named
    return words(block.get("text") or block.get("summary") or block.get("thinking"))


def _overlap(text: str, tag: str) -> int:
    """How many characters of `tag` the text ends with."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
