"""The bound of one turn's answer: `MAX_ANSWER_SIZE` bytes of what the model says.

All provider calls of a turn count together: text, refusals, reasoning, arguments of
calls and annotations. What a provider's own tools leave (pictures, for instance) comes
whole and is bounded as a whole answer is, by `exchange.MAX_WHOLE_ANSWER`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from llm.client import Call
from llm.exchange import MAX_WHOLE_ANSWER
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
from llm.wire.request import Request

if TYPE_CHECKING:
    from conversations.loop import Stream

REASON = "max_answer_size"  # of a turn that is incomplete for it

_TEXTS = {
    TextDelta: "text",
    ReasoningDelta: "text",
    RefusalDelta: "text",
    ToolCallDelta: "arguments",
}


class AnswerSize:
    """Counts the bytes of one turn's answer, and cuts what exceeds them."""

    def __init__(self, limit: int, used: int = 0) -> None:
        self.is_exceeded = used >= limit
        self._left = limit - used
        self._items: dict[Key, int] = {}  # bytes of this call's, as they are now
        self._items_left = MAX_WHOLE_ANSWER

    def begin_call(self) -> None:
        self._items = {}

    def take(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas, up to the limit; then the one that says why there are no more."""
        for number, delta in enumerate(deltas):
            size = self._size_of(delta)
            if size <= self._left and self._items_left >= 0:
                self._left -= size
                continue
            self.is_exceeded = True
            cut = _cut(delta, self._left)
            finish = FinishDelta("size", REASON)
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


def bounded(stream: Stream, size: AnswerSize) -> Stream:
    """`stream`, hung up as soon as the turn's answer is too large."""

    async def cut(request: Request, call: Call) -> AsyncGenerator[list[Delta], None]:
        size.begin_call()
        if size.is_exceeded:  # by what earlier runs of the turn have left
            yield [FinishDelta("size", REASON)]
            return
        batches = stream(request, call)
        del request  # which may be large
        async with aclosing(batches):
            async for deltas in batches:
                yield size.take(deltas)
                if size.is_exceeded:
                    return
                del deltas  # as the next may be long in coming

    return cut


def size_of(items: Iterable[Item]) -> int:
    """Bytes of what the model has said in items of the turn that are done."""
    return sum(_item_size(item) for item in items)


def _item_size(item: Mapping[str, Any]) -> int:
    if item["type"] == "function_call":
        return _length(item["arguments"])
    if item["type"] == "reasoning" or item.get("role") == "assistant":
        parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        return sum(_length(part.get("text") or "") for part in parts)
    return 0


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _cut(delta: Delta, left: int) -> Delta | None:
    """The beginning of a text, in whole letters."""
    if (name := _TEXTS.get(type(delta))) is None or left <= 0:
        return None
    data = getattr(delta, name).encode(errors="surrogatepass")[:left]
    return replace(delta, **{name: data.decode(errors="ignore")})
