"""Resume an answer that an interruption cut short. Pure.

The provider call is repeated from its start. Text that clients show already must
neither vanish nor be sent twice, so the new answer is compared with the stored partial
items, item by item. While the new answer repeats them its deltas are dropped, and what
follows continues the same items. If it differs, the partial items stay, marked as
interrupted, and the whole new answer follows in new items.

Until the comparison is settled, the partial items are open in the builder. So they are
not in its output, and neither the next step nor the next request depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    FrameDelta,
    ItemDelta,
    Key,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import Event, Item
from llm.wire.response_builder import ResponseBuilder

#: Characters. Shorter text is not sent as a prefill: repeating it costs little, and a
#: provider that repeats so short a text looks like one that continues it.
MIN_PREFILL = 40
#: A provider's request for approval; the new answer makes it again, as with a call.
_REQUESTS = ("mcp_approval_request",)


class Resumption:
    """Passes the deltas of the repeated provider call to the builder, without what the
    partial items hold already."""

    def __init__(self, builder: ResponseBuilder, partial: Sequence[Item]) -> None:
        self._builder = builder
        self._events: list[Event] = []
        self._partial_items: list[_PartialItem] = []
        self._is_settled = False  # the comparison has a result
        self._next = 0  # index of the partial item that is compared next
        self._by_key: dict[Key, _PartialItem] = {}  # by the new answer's item keys
        self._current: _PartialItem | None = None  # message or reasoning that is open
        self._current_key: Key = None
        self._buffered: list[
            Delta
        ] = []  # deltas of the new answer, until it is settled
        self._prefilled: _Prefilled | None = None  # set where a prefill was sent
        self._reopen(partial)

    @property
    def prefill(self) -> str:
        """Text for a provider that can continue an answer; "" if there is none.

        Only a partial answer that is a single text can be continued. Trailing spaces
        are removed, as some providers refuse them.
        """
        match [partial_item.item for partial_item in self._partial_items]:
            case [
                {"type": "message", "content": [{"type": "output_text", "text": text}]}
            ] if self._can_prefill:
                prefix: str = text.rstrip()
                return prefix if len(prefix) >= MIN_PREFILL else ""
        return ""

    @property
    def is_prefilled(self) -> bool:
        return self._prefilled is not None

    def continue_after(self, prefill: str) -> None:
        """Expect an answer that begins behind `prefill`, which the request contains."""
        self._prefilled = _Prefilled(prefill)

    def start(self) -> list[Event]:
        """The events of the partial items, to be sent again."""
        return self._take_events()

    def feed(self, deltas: list[Delta]) -> list[Event]:
        if self._prefilled:
            deltas = self._prefilled.feed(deltas)
        if not self._is_settled:
            for number, delta in enumerate(deltas):
                self._compare(delta)
                if self._is_settled:
                    deltas = deltas[number + 1 :]
                    break
            else:
                deltas = []
        if self._by_key:
            deltas = [self._map_key(delta) for delta in deltas]
        if deltas:
            self._events += self._builder.feed(deltas)
        return self._take_events()

    def end(self) -> list[Event]:
        """Close the comparison; the new answer may be shorter than the partial one."""
        if self._prefilled and (rest := self._prefilled.end()):
            return [*self.feed(rest), *self.end()]
        if not self._is_settled:
            if self._is_repeated():
                self._settle()
            else:
                self._diverge()
        return self._take_events()

    # The partial items

    def _reopen(self, partial: Sequence[Item]) -> None:
        self._can_prefill = not any(map(_is_requested_again, partial))
        for item in _resumable_items(partial):
            if item.get("parley:interrupted"):  # in an earlier resumption
                self._events += self._builder.add(item)
                continue
            key = f"parley:resumed {len(self._partial_items)}"
            self._partial_items.append(_PartialItem(key, item))
            self._events += self._builder.reopen(key, item)
        if self._partial_items:
            self._partial_items[-1].is_last = True
        else:
            self._is_settled = True

    # The new answer, while it may repeat the partial items

    def _compare(self, delta: Delta) -> None:
        if isinstance(delta, StartDelta | UsageDelta | FinishDelta):
            self._events += self._builder.feed([delta])
            return
        self._buffered.append(delta)
        match delta:
            case TextDelta():
                self._compare_text(delta, "message", "output_text")
            case RefusalDelta():
                self._compare_text(delta, "message", "refusal")
            case ReasoningDelta():
                is_summary = delta.kind == "summary"
                part = "summary_text" if is_summary else "reasoning_text"
                self._compare_text(delta, "reasoning", part)
            case ItemDelta():
                self._compare_item(delta)
            case AnnotationDelta(key, annotation):
                if partial_item := self._match_key(key, "message"):
                    partial_item.annotations.append(annotation)
            case ProofDelta(key, raw):
                # A proof without an open item belongs to an empty reasoning item.
                known = self._by_key.get(key)
                if partial_item := known or self._match_key(key, "reasoning"):
                    partial_item.proof = [raw]
            case CloseDelta(key):
                if partial_item := self._by_key.get(key):
                    partial_item.closed = delta
                    if partial_item is self._current:
                        self._current = self._current_key = None
            case ToolCallDelta():
                self._go_beyond()

    def _compare_text(
        self, delta: TextDelta | RefusalDelta | ReasoningDelta, type: str, part: str
    ) -> None:
        if (partial_item := self._match_key(delta.key, type)) is None:
            return
        beyond = partial_item.consume(part, delta.text)
        if beyond is None or (beyond and not self._is_repeated()):
            self._diverge()
        elif beyond:
            self._settle()
            continuation = replace(delta, key=partial_item.key, text=beyond)
            self._events += self._builder.feed([continuation])

    def _match_key(self, key: Key, type: str) -> _PartialItem | None:
        """The partial item that `key` of the new answer repeats.

        None if there is none; then the comparison is settled.
        """
        if self._current is not None and key == self._current_key:
            return self._current
        if (partial_item := self._next_of_type(type)) is None:
            self._go_beyond()
            return None
        self._by_key[key] = partial_item
        self._current, self._current_key = partial_item, key
        return partial_item

    def _next_of_type(self, type: str) -> _PartialItem | None:
        """The next partial item if it has this type."""
        remaining = self._partial_items[self._next :]
        # A model may give the same answer without reasoning first.
        if len(remaining) > 1 and remaining[0].type == "reasoning" != type:
            self._next, remaining = self._next + 1, remaining[1:]
        if not remaining or remaining[0].type != type:
            return None
        self._next += 1
        return remaining[0]

    def _compare_item(self, delta: ItemDelta) -> None:
        partial_item = self._by_key.get(delta.key)
        if partial_item is None:
            partial_item = self._next_of_type(delta.item["type"])
            if partial_item is None:
                self._go_beyond()
                return
            self._by_key[delta.key] = partial_item
        partial_item.receipt = delta
        if not partial_item.resembles(delta):
            self._diverge()

    def _go_beyond(self) -> None:
        """Handle a last buffered delta that begins an item beyond the partial ones."""
        if not self._is_repeated():
            self._diverge()
            return
        beginning = self._buffered[-1]
        self._settle()
        self._by_key.pop(_key(beginning), None)
        self._events += self._builder.feed([beginning])

    def _is_repeated(self) -> bool:
        """Whether the new answer has repeated all partial items."""
        return self._next == len(self._partial_items) and all(
            k.is_repeated for k in self._partial_items
        )

    # The result of the comparison

    def _settle(self) -> None:
        """Continue the partial items with the new answer, which repeats them."""
        self._is_settled, self._buffered = True, []
        for partial_item in self._partial_items:
            rest: list[Delta] = partial_item.annotations_beyond()
            if partial_item.receipt:
                rest.append(replace(partial_item.receipt, key=partial_item.key))
            elif partial_item.closed:
                rest.append(replace(partial_item.closed, key=partial_item.key))
            elif partial_item is not self._current:
                rest.append(CloseDelta(partial_item.key))
            if partial_item.proof:
                self._builder.proofs[partial_item.item["id"]] = partial_item.proof[0]
            self._events += self._builder.feed(rest)

    def _diverge(self) -> None:
        """Mark the partial items as interrupted and feed the whole new answer."""
        self._is_settled, self._by_key = True, {}
        for partial_item in self._partial_items:
            self._events += self._builder.interrupt(
                partial_item.key, complete=partial_item.is_whole
            )
        buffered, self._buffered = self._buffered, []
        self._events += self._builder.feed(buffered)

    def _map_key(self, delta: Delta) -> Delta:
        """Replace the key of a continued item by the key of its partial item."""
        if isinstance(delta, StartDelta | UsageDelta | FinishDelta | FrameDelta):
            return delta
        if (partial_item := self._by_key.get(delta.key)) is None:
            return delta
        is_late = isinstance(delta, ProofDelta | CloseDelta)
        if not is_late and not self._builder.is_open(partial_item.key):
            del self._by_key[delta.key]  # from now on the key names a new item
            return delta
        return replace(delta, key=partial_item.key)

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events


class _Prefilled:
    """Prepends the prefill to an answer that continues it.

    Some hosts repeat the prefill and some do not. This is decided when the text is as
    long as the prefill or differs from it.
    """

    __slots__ = ("_is_over", "_key", "_prefill", "_text")

    def __init__(self, prefill: str) -> None:
        self._prefill = prefill
        self._text = ""  # of the answer, while it may repeat the prefill
        self._key: Key = "parley:prefilled"  # of the continued item
        self._is_over = False

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        output: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, ProofDelta) and delta.key == self._key:
                continue  # the signature does not cover the prefill
            output += self._feed_one(delta)
        return output

    def end(self) -> list[Delta]:
        """The remaining deltas of an answer that has ended."""
        if self._is_over:
            return []
        self._is_over = True
        if self._text == self._prefill:  # the host repeated it and added nothing
            return [TextDelta(self._key, self._text)]
        return [TextDelta(self._key, self._prefill + self._text)]

    def _feed_one(self, delta: Delta) -> list[Delta]:
        if self._is_over or isinstance(delta, StartDelta | UsageDelta | FinishDelta):
            return [delta]
        if isinstance(delta, ReasoningDelta) or (
            isinstance(delta, ProofDelta) and not self._text
        ):
            return [delta]  # reasoning may precede the text
        if not isinstance(delta, TextDelta):
            return [*self.end(), delta]
        self._key = delta.key
        self._text += delta.text
        if self._prefill.startswith(self._text):
            return []
        self._is_over = True
        is_repeated = self._text.startswith(self._prefill)
        text = self._text if is_repeated else self._prefill + self._text
        return [replace(delta, text=text)]


class _PartialItem:
    """An item of the interrupted call, and how much of it the new answer repeated."""

    __slots__ = (
        "_number",
        "_offset",
        "_pieces",
        "annotations",
        "closed",
        "is_last",
        "item",
        "key",
        "proof",
        "receipt",
        "type",
    )

    def __init__(self, key: Key, item: Item) -> None:
        self.key = key
        self.item = item
        self.type: str = item["type"]
        self.is_last = False
        self.annotations: list[dict[str, Any]] = []  # of the new answer
        self.closed: CloseDelta | None = None
        self.proof: list[Any] = []  # of the new answer, one at the most
        self.receipt: ItemDelta | None = None  # of a hosted tool
        self._pieces = _pieces(item)
        self._number = 0  # index of the piece that is compared
        self._offset = 0  # characters of that piece that were repeated

    @property
    def is_repeated(self) -> bool:
        if not self._is_text:
            return self.receipt is not None and (self.receipt.done or not self.is_whole)
        if self.type == "reasoning" and not self.is_last:
            return True
        return self._number == len(self._pieces)

    def consume(self, kind: str, text: str) -> str | None:
        """The part of `text` beyond this item's text; None if the texts differ."""
        if self.type == "reasoning" and not self.is_last:
            return ""  # reasoning differs each time; what follows it is compared
        while text and self._number < len(self._pieces):
            expected_kind, expected = self._pieces[self._number]
            rest = len(expected) - self._offset
            if kind != expected_kind or not expected.startswith(
                text[:rest], self._offset
            ):
                return None
            self._offset += len(text[:rest])
            text = text[rest:]
            if self._offset == len(expected):
                self._number, self._offset = self._number + 1, 0
        return text

    def resembles(self, delta: ItemDelta) -> bool:
        """Whether a hosted tool's item of the new answer may repeat this one."""
        if not (delta.done and self.is_whole):
            return True
        return _content(delta.item) == _content(self.item)

    def annotations_beyond(self) -> list[Delta]:
        """Annotations of the new answer that this item does not have yet."""
        parts = self.item.get("content") or ()
        known = sum(len(part.get("annotations") or ()) for part in parts)
        return [AnnotationDelta(self.key, each) for each in self.annotations[known:]]

    @property
    def _is_text(self) -> bool:
        return self.type in ("message", "reasoning")

    @property
    def is_whole(self) -> bool:
        status: str | None = self.item.get("status")
        return status not in ("in_progress", "incomplete")


def _resumable_items(partial: Sequence[Item]) -> list[Item]:
    """The items to compare: without calls, which the new answer makes again, and
    without items that have no visible text."""
    items = [item for item in partial if not _is_requested_again(item)]
    while items and _is_text(items[-1]) and not _pieces(items[-1]):
        items.pop()
    return [item for item in items if item["type"] != "message" or _pieces(item)]


def _is_requested_again(item: Item) -> bool:
    """Whether the item is a call that the provider does not run itself, a request for
    approval, or a result (results of background calls are delivered from their rows).
    """
    if item["type"] in _REQUESTS or "call_id" in item:
        return True
    return "role" in item and item["role"] != "assistant"


def _is_text(item: Item) -> bool:
    return item["type"] in ("message", "reasoning")


def _pieces(item: Item) -> list[tuple[str, str]]:
    """The texts of an item with their kinds, in the order in which they were sent."""
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    texts = [(part["type"], _text(part)) for part in parts]
    return [(kind, text) for kind, text in texts if text]


def _text(part: Mapping[str, Any]) -> str:
    text: str = part.get("text") or part.get("refusal") or ""
    return text


def _key(delta: Delta) -> Key:
    return getattr(delta, "key", None)


def _content(item: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in item.items() if k not in ("id", "status")}
