"""The fields and shapes in which Chat Completions hosts send a model's reasoning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from llm.errors import BadResponse
from llm.wire.deltas import MAX_ITEMS
from llm.wire.sanitize import sanitize_text

#: Fields for plain text. A host that fills two of them repeats the same text.
TEXT_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
#: Fields that must be sent back unchanged; Copilot's and Venice's.
OPAQUE_FIELDS = ("reasoning_opaque", "reasoning_encrypted")
#: The same as lists of blocks: OpenRouter (Vercel, Snowflake) and LiteLLM.
BLOCK_FIELDS = ("reasoning_details", "thinking_blocks")
_MAX_START = 1000  # characters, nearly all whitespace, in which a tag may begin
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
    """The complete blocks of these pieces; see `ReasoningBlocks`."""
    blocks = ReasoningBlocks()
    for piece in pieces:
        blocks.add(piece)
    return blocks.whole()


def join_late(
    blocks: list[dict[str, Any]], late: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Complete blocks with pieces that came after the text, or came again."""
    known = {block.get("data") for block in blocks} - {None}
    return join_pieces([*blocks, *(b for b in late if b.get("data") not in known)])


class ReasoningBlocks:
    """Joins pieces of reasoning blocks into the complete blocks that the host wants
    back.

    A piece extends the last block of its type and index; encrypted blocks are never
    split.
    """

    __slots__ = ("_blocks", "_latest")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._latest: dict[_Place, _Latest] = {}

    def add(self, piece: dict[str, Any]) -> None:
        """Raises BadResponse if there are too many blocks."""
        number = len(self._blocks)
        if not piece.get("data"):
            key = str(piece.get("type")), str(piece.get("index"))
            number = self._latest.setdefault(key, _Latest()).extend(piece, number)
        if number < len(self._blocks):
            self._blocks[number].extend(piece)
        elif number < MAX_ITEMS:
            self._blocks.append(_Block(piece))
        else:
            raise BadResponse(detail=f"More than {MAX_ITEMS:,} blocks of reasoning.")

    def whole(self) -> list[dict[str, Any]]:
        return [block.whole() for block in self._blocks]


class _Block:
    """The texts of a block's pieces, and the last non-empty value of other fields."""

    __slots__ = ("_fields", "_first", "_texts")

    def __init__(self, piece: dict[str, Any]) -> None:
        self._first = piece
        self._fields: dict[str, Any] | None = None  # None: it is all
        self._texts: dict[str, list[Any]] = {}

    def extend(self, piece: dict[str, Any]) -> None:
        if self._fields is None:
            self._fields = {}
            self._merge(self._first)
        self._merge(piece)

    def _merge(self, piece: dict[str, Any]) -> None:
        assert self._fields is not None
        for name, value in piece.items():
            if value not in (None, "") or name not in self._fields:
                self._fields[name] = value
            if value and name in ("text", "summary", "thinking"):
                self._texts.setdefault(name, []).append(value)

    def whole(self) -> dict[str, Any]:
        if self._fields is None:
            return dict(self._first)
        return {**self._fields, **{n: _join(v) for n, v in self._texts.items()}}


def _join(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return sanitize_text("".join(values))
    return [{"type": "text", "text": text_in(values)}]  # Mistral's lists of text parts


class ThinkTags:
    """Splits "<think>…</think>" off the beginning of an answer that arrives in
    pieces. With `begun` the prompt has the first tag, so the answer may lack it."""

    __slots__ = ("_begun", "_pending", "_state")

    def __init__(self, *, begun: bool = False) -> None:
        self._begun = begun
        self._pending = ""
        self._state: Literal["before", "inside", "gap", "after"] = "before"

    def feed(self, text: str) -> Iterator[tuple[bool, str]]:
        """Pieces of the text, each with whether it is reasoning."""
        text, self._pending = self._pending + text, ""
        if self._state == "before":
            head = text.lstrip()
            is_start = len(text) < _MAX_START and len(head) < len("<think>")
            if is_start and "<think>".startswith(head):
                self._pending = text
                return
            is_inside = self._begun or head.startswith("<think>")
            self._state = "inside" if is_inside else "after"
            text = head.removeprefix("<think>") if is_inside else text
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
        is_thought = self._state == "inside" or (
            self._begun and self._state == "before" and bool(pending)
        )
        yield is_thought, pending


_Place = tuple[str, str]  # type and index of a block


class _Latest:
    """The latest block of one type and index, and the latest by the id of its last
    piece."""

    __slots__ = ("_by_id", "_ids", "_number")

    def __init__(self) -> None:
        self._number: int | None = None
        self._by_id: dict[str | None, int] = {}
        self._ids: dict[int, str | None] = {}  # the last of each block

    def extend(self, piece: dict[str, Any], new: int) -> int:
        """The number of the block that `piece` extends; `new` if it begins one."""
        id = None if piece.get("id") is None else str(piece["id"])
        found: int | None = self._number
        if id:
            numbers = (self._by_id.get(id, -1), self._by_id.get(None, -1))
            found = max(numbers) if max(numbers) >= 0 else None
        if found is None:
            found = self._number = new
        elif self._by_id.get(last := self._ids[found]) == found:
            del self._by_id[last]
        self._by_id[id], self._ids[found] = found, id
        return found


def _block_words(named: tuple[str, dict[str, Any]]) -> str:
    _, block = named
    return text_in(block.get("text") or block.get("summary") or block.get("thinking"))


def _overlap(text: str, tag: str) -> int:
    """How many characters of `tag` the text ends with."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
