"""Size limit of one turn's answer: `MAX_ANSWER_SIZE` bytes of model output.

All provider calls of a turn count together: text, refusals, reasoning, arguments of
calls and annotations. Items that a provider's own tools produce (pictures, for
instance) arrive complete; their limit for each call is `exchange.MAX_BODY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from llm.http.exchange import MAX_BODY
from llm.wire.deltas import (
    AnnotationDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    Key,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.items import Item

INCOMPLETE_REASON = (
    "max_answer_size"  # the `incomplete_reason` of a turn that exceeds the limit
)

_TEXTS = {
    TextDelta: "text",
    ReasoningDelta: "text",
    RefusalDelta: "text",
    ToolCallDelta: "arguments",
}


class AnswerSize:
    """Counts the bytes of one turn's answer, of which `completed` are the items of
    earlier runs, and drops deltas beyond the limit."""

    def __init__(self, limit: int, completed: Iterable[Item] = ()) -> None:
        used = sum(_item_size(item) for item in completed)
        self.is_exceeded = used >= limit
        self._left = limit - used
        self._items: dict[Key, int] = {}  # current bytes of this call's items
        self._items_left = MAX_BODY

    def begin_call(self) -> None:
        self._items = {}
        self._items_left = MAX_BODY

    def take(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas up to the limit, followed by a FinishDelta if it is exceeded."""
        for number, delta in enumerate(deltas):
            size = self._size_of(delta)
            if size <= self._left and self._items_left >= 0:
                self._left -= size
                continue
            self.is_exceeded = True
            cut = _truncate(delta, self._left)
            finish = FinishDelta("size", INCOMPLETE_REASON)
            return [*deltas[:number], *([cut] if cut else []), finish]
        return deltas

    def _size_of(self, delta: Delta) -> int:
        if (name := _TEXTS.get(type(delta))) is not None:
            return _length(getattr(delta, name))
        match delta:
            case AnnotationDelta(annotation=annotation):
                return len(orjson.dumps(annotation))
            case ItemDelta(key=key, item=item):
                size = len(orjson.dumps(item))
                self._items_left -= size - self._items.get(key, 0)
                self._items[key] = size
        return 0


def _item_size(item: Mapping[str, Any]) -> int:
    """Bytes of model output in a completed item."""
    if item["type"] == "function_call":
        return _length(item["arguments"])
    if item["type"] == "reasoning" or item.get("role") == "assistant":
        parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        return sum(_length(part.get("text") or "") for part in parts)
    return 0


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _truncate(delta: Delta, left: int) -> Delta | None:
    """The start of a text delta, cut between characters; None where nothing fits."""
    if (name := _TEXTS.get(type(delta))) is None or left <= 0:
        return None
    data = getattr(delta, name).encode(errors="surrogatepass")[:left]
    return replace(delta, **{name: data.decode(errors="ignore")})
