"""The fields and shapes in which Chat Completions hosts send a model's reasoning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from llm.wire.sanitize import sanitize_text

#: Fields for plain text. A host that fills two of them repeats the same text.
TEXT_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
#: Fields that must be sent back unchanged; Copilot's and Venice's.
OPAQUE_FIELDS = ("reasoning_opaque", "reasoning_encrypted")
#: The same as lists of blocks: OpenRouter (Vercel, Snowflake) and LiteLLM.
BLOCK_FIELDS = ("reasoning_details", "thinking_blocks")
REASONING_FIELDS = frozenset({*TEXT_FIELDS, *OPAQUE_FIELDS, *BLOCK_FIELDS})


def thought_of(message: dict[str, Any]) -> tuple[str, Literal["text", "summary"]]:
    """The reasoning text in a message or delta, and whether it is a summary."""
    text = ""
    for name in TEXT_FIELDS:
        if (value := message.get(name)) and (text := text_in(value)):
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
        for name in BLOCK_FIELDS
        if name in message
        for block in message[name] or ()
        if isinstance(block, dict)
    ]


def text_in(value: Any) -> str:
    """The text in a string, in an object, or in a list of either."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return text_in(value.get("text") or value.get("content"))
    if isinstance(value, list):
        return "".join(text_in(part) for part in value)
    return ""


def join_pieces(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
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

    __slots__ = ("_pending", "_state")

    def __init__(self) -> None:
        self._pending = ""
        self._state: Literal["before", "inside", "gap", "after"] = "before"

    def feed(self, text: str) -> Iterator[tuple[bool, str]]:
        """Pieces of the text, each with whether it is reasoning."""
        text, self._pending = self._pending + text, ""
        if self._state == "before":
            head = text.lstrip()
            if len(head) < len("<think>") and "<think>".startswith(head):
                self._pending = text
                return
            self._state = "inside" if head.startswith("<think>") else "after"
            text = head.removeprefix("<think>") if self._state == "inside" else text
        if self._state == "inside":
            thought, closing, text = text.partition("</think>")
            if not closing:
                keep = _overlap(thought, "</think>")
                self._pending = thought[len(thought) - keep :]
                yield True, thought[: len(thought) - keep]
                return
            self._state = "gap"
            yield True, thought
        if self._state == "gap" and (text := text.lstrip()):
            self._state = "after"
        yield False, text

    def close(self) -> Iterator[tuple[bool, str]]:
        pending, self._pending = self._pending, ""
        yield self._state == "inside", pending


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
            block[name] = sanitize_text("".join(values))
        elif values:  # Mistral's lists of text parts
            block[name] = [{"type": "text", "text": text_in(values)}]
    return block


def _block_words(named: tuple[str, dict[str, Any]]) -> str:
    _, block = named
    return text_in(block.get("text") or block.get("summary") or block.get("thinking"))


def _overlap(text: str, tag: str) -> int:
    """How many characters of `tag` the text ends with."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
