"""Goes on with an answer that an interruption cut short. Pure.

The provider is asked again, from the start of the call. What is on people's screens
must not vanish, nor be sent twice, so the new answer is compared with the items that
were kept, item by item: while it repeats them it is swallowed, and what lies beyond
goes on in the same items. Where it says something else, the kept items stay, marked as
interrupted, and the whole new answer follows in items of its own.

Until that is known, the kept items are open in the builder. So they are no part of its
output, and neither the next step nor the next request is made of them.
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
from llm.wire.response import ResponseBuilder

#: Shorter text is asked for again: it costs little, and a provider that repeats it
#: could not be told apart from one that goes on.
MIN_PREFILL = 40
#: A provider's request to a person; it is made again, as a call is.
_REQUESTS = ("mcp_approval_request",)


class Resumption:
    """Stands between a provider call's deltas and the builder, for the first call."""

    def __init__(self, builder: ResponseBuilder, partial: Sequence[Item]) -> None:
        self._builder = builder
        self._events: list[Event] = []
        self._kept: list[_KeptItem] = []
        self._is_settled = False  # it is known how the new answer compares
        self._next = 0  # the kept item that the next new one is compared with
        self._by_key: dict[Key, _KeptItem] = {}  # of the new answer's items
        self._current: _KeptItem | None = None  # the message or reasoning being said
        self._current_key: Key = None
        self._held: list[Delta] = []  # the new answer, until it is settled
        self._prefilled: _Prefilled | None = None  # where the provider goes on
        self._reopen(partial)

    @property
    def prefill(self) -> str:
        """What a provider that can go on with an answer may be given of it; "" where
        there was more to it than one text. Trailing spaces are refused by some."""
        match [kept.item for kept in self._kept]:
            case [
                {"type": "message", "content": [{"type": "output_text", "text": text}]}
            ] if self._can_be_given:
                begun: str = text.rstrip()
                return begun if len(begun) >= MIN_PREFILL else ""
        return ""

    @property
    def is_prefilled(self) -> bool:
        return self._prefilled is not None

    def go_on_from(self, prefill: str) -> None:
        """The provider was given `prefill`, so its answer leaves that out."""
        self._prefilled = _Prefilled(prefill)

    def start(self) -> list[Event]:
        """What is sent again of the interrupted call."""
        return self._take()

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
            deltas = [self._renamed(delta) for delta in deltas]
        if deltas:
            self._events += self._builder.feed(deltas)
        return self._take()

    def end(self) -> list[Event]:
        """The new answer is over; it may have been shorter than what was kept."""
        if self._prefilled and (rest := self._prefilled.end()):
            return [*self.feed(rest), *self.end()]
        if not self._is_settled:
            if self._is_repeated():
                self._settle()
            else:
                self._diverge()
        return self._take()

    # What was kept

    def _reopen(self, partial: Sequence[Item]) -> None:
        self._can_be_given = not any(map(_is_made_anew, partial))
        for item in _to_keep(partial):
            if item.get("parley:interrupted"):  # by an earlier interruption
                self._events += self._builder.add(item)
                continue
            key = f"parley:resumed {len(self._kept)}"
            self._kept.append(_KeptItem(key, item))
            self._events += self._builder.reopen(key, item)
        if self._kept:
            self._kept[-1].is_last = True
        else:
            self._is_settled = True

    # The new answer, while it may be the same

    def _compare(self, delta: Delta) -> None:
        if isinstance(delta, StartDelta | UsageDelta | FinishDelta):
            self._events += self._builder.feed([delta])
            return
        self._held.append(delta)
        match delta:
            case TextDelta():
                self._say(delta, "message", "output_text")
            case RefusalDelta():
                self._say(delta, "message", "refusal")
            case ReasoningDelta():
                is_summary = delta.kind == "summary"
                part = "summary_text" if is_summary else "reasoning_text"
                self._say(delta, "reasoning", part)
            case ItemDelta():
                self._compare_item(delta)
            case AnnotationDelta(key, annotation):
                if kept := self._opened(key, "message"):
                    kept.annotations.append(annotation)
            case ProofDelta(key, raw):
                # What nothing else opens is an empty reasoning item.
                known = self._by_key.get(key)
                if kept := known or self._opened(key, "reasoning"):
                    kept.proof = [raw]
            case CloseDelta(key):
                if kept := self._by_key.get(key):
                    kept.closed = delta
                    if kept is self._current:
                        self._current = self._current_key = None
            case ToolCallDelta():
                self._go_beyond()

    def _say(
        self, delta: TextDelta | RefusalDelta | ReasoningDelta, type: str, part: str
    ) -> None:
        if (kept := self._opened(delta.key, type)) is None:
            return
        beyond = kept.consume(part, delta.text)
        if beyond is None or (beyond and not self._is_repeated()):
            self._diverge()
        elif beyond:
            self._settle()
            said = replace(delta, key=kept.key, text=beyond)
            self._events += self._builder.feed([said])

    def _opened(self, key: Key, type: str) -> _KeptItem | None:
        """The kept item that the new answer's `key` repeats; None once it is settled
        that there is none."""
        if self._current is not None and key == self._current_key:
            return self._current
        if (kept := self._following(type)) is None:
            self._go_beyond()
            return None
        self._by_key[key] = kept
        self._current, self._current_key = kept, key
        return kept

    def _following(self, type: str) -> _KeptItem | None:
        """The next kept item, where it is of this type."""
        left = self._kept[self._next :]
        # A model may answer the same without thinking first.
        if len(left) > 1 and left[0].type == "reasoning" != type:
            self._next, left = self._next + 1, left[1:]
        if not left or left[0].type != type:
            return None
        self._next += 1
        return left[0]

    def _compare_item(self, delta: ItemDelta) -> None:
        kept = self._by_key.get(delta.key)
        if kept is None:
            kept = self._following(delta.item["type"])
            if kept is None:
                self._go_beyond()
                return
            self._by_key[delta.key] = kept
        kept.receipt = delta
        if not kept.resembles(delta):
            self._diverge()

    def _go_beyond(self) -> None:
        """The last held delta begins an item that was not kept."""
        if not self._is_repeated():
            self._diverge()
            return
        beginning = self._held[-1]
        self._settle()
        self._by_key.pop(_key(beginning), None)
        self._events += self._builder.feed([beginning])

    def _is_repeated(self) -> bool:
        """Whether the new answer has said all that was kept."""
        return self._next == len(self._kept) and all(k.is_said for k in self._kept)

    # How it compares

    def _settle(self) -> None:
        """The new answer is the kept one, and may go on with it."""
        self._is_settled, self._held = True, []
        for kept in self._kept:
            rest: list[Delta] = kept.annotations_beyond()
            if kept.receipt:
                rest.append(replace(kept.receipt, key=kept.key))
            elif kept.closed:
                rest.append(replace(kept.closed, key=kept.key))
            elif kept is not self._current:
                rest.append(CloseDelta(kept.key))
            if kept.proof:
                self._builder.proofs[kept.item["id"]] = kept.proof[0]
            self._events += self._builder.feed(rest)

    def _diverge(self) -> None:
        """The new answer is another one."""
        self._is_settled, self._by_key = True, {}
        for kept in self._kept:
            self._events += self._builder.interrupt(kept.key, complete=kept.is_whole)
        held, self._held = self._held, []
        self._events += self._builder.feed(held)

    def _renamed(self, delta: Delta) -> Delta:
        """An item of the new answer goes by the name of the one it goes on with."""
        if isinstance(delta, StartDelta | UsageDelta | FinishDelta):
            return delta
        if (kept := self._by_key.get(delta.key)) is None:
            return delta
        is_late = isinstance(delta, ProofDelta | CloseDelta)
        if not is_late and not self._builder.is_open(kept.key):
            del self._by_key[delta.key]  # from now on it is of an item that begins
            return delta
        return replace(delta, key=kept.key)

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events


class _Prefilled:
    """Puts the prefill in front of an answer that goes on behind it.

    Some hosts repeat the prefill and some do not; which it is shows when the text has
    become as long, or another.
    """

    __slots__ = ("_is_over", "_key", "_prefill", "_text")

    def __init__(self, prefill: str) -> None:
        self._prefill = prefill
        self._text = ""  # of the answer, while it may be the prefill
        self._key: Key = "parley:prefilled"  # of the item that goes on
        self._is_over = False

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        told: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, ProofDelta) and delta.key == self._key:
                continue  # it vouches for the rest alone
            told += self._told(delta)
        return told

    def end(self) -> list[Delta]:
        """What is still to be told of an answer that is over."""
        if self._is_over:
            return []
        self._is_over = True
        if self._text == self._prefill:  # it was repeated, and nothing beyond it
            return [TextDelta(self._key, self._text)]
        return [TextDelta(self._key, self._prefill + self._text)]

    def _told(self, delta: Delta) -> list[Delta]:
        if self._is_over or isinstance(delta, StartDelta | UsageDelta | FinishDelta):
            return [delta]
        if isinstance(delta, ReasoningDelta) or (
            isinstance(delta, ProofDelta) and not self._text
        ):
            return [delta]  # it thinks first
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


class _KeptItem:
    """An item of the interrupted call, and how much of it the new answer has said."""

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
        self._number = 0  # of the piece that is compared
        self._offset = 0  # in that piece

    @property
    def is_said(self) -> bool:
        if not self._is_text:
            return self.receipt is not None and (self.receipt.done or not self.is_whole)
        if self.type == "reasoning" and not self.is_last:
            return True
        return self._number == len(self._pieces)

    def consume(self, kind: str, text: str) -> str | None:
        """What of `text` lies beyond what was kept; None where it is another text."""
        if self.type == "reasoning" and not self.is_last:
            return ""  # what it led to is compared; nobody thinks twice the same
        while text and self._number < len(self._pieces):
            kept_kind, kept = self._pieces[self._number]
            rest = len(kept) - self._offset
            if kind != kept_kind or not kept.startswith(text[:rest], self._offset):
                return None
            self._offset += len(text[:rest])
            text = text[rest:]
            if self._offset == len(kept):
                self._number, self._offset = self._number + 1, 0
        return text

    def resembles(self, delta: ItemDelta) -> bool:
        """Whether the hosted tool's item may be this one."""
        if not (delta.done and self.is_whole):
            return True
        return _content(delta.item) == _content(self.item)

    def annotations_beyond(self) -> list[Delta]:
        """Those of the new answer that the kept one did not have yet."""
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


def _to_keep(partial: Sequence[Item]) -> list[Item]:
    """Without calls, which are made anew, and without what nobody could read."""
    kept = [item for item in partial if not _is_made_anew(item)]
    while kept and _is_text(kept[-1]) and not _pieces(kept[-1]):
        kept.pop()
    return [item for item in kept if item["type"] != "message" or _pieces(item)]


def _is_made_anew(item: Item) -> bool:
    """Calls by anybody but the provider, requests to people, and results: those of
    calls in the background are delivered from their rows."""
    if item["type"] in _REQUESTS or "call_id" in item:
        return True
    return "role" in item and item["role"] != "assistant"


def _is_text(item: Item) -> bool:
    return item["type"] in ("message", "reasoning")


def _pieces(item: Item) -> list[tuple[str, str]]:
    """The texts of an item with their kinds, in the order in which they were said."""
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    told = [(part["type"], _text(part)) for part in parts]
    return [(kind, text) for kind, text in told if text]


def _text(part: Mapping[str, Any]) -> str:
    text: str = part.get("text") or part.get("refusal") or ""
    return text


def _key(delta: Delta) -> Key:
    return getattr(delta, "key", None)


def _content(item: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in item.items() if k not in ("id", "status")}
