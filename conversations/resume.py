"""Goes on with an answer that a crash cut short. Pure.

The provider is asked again, from the start of the step. What is on people's screens
must not vanish, nor be told twice, so the new answer is compared with the text that was
kept: while it says the same again it is swallowed, and what lies beyond goes on in the
same message. Where it says something else, the kept text stays, marked as interrupted,
and the new answer follows as a message of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    Key,
    ProofDelta,
    ReasoningDelta,
    StartDelta,
    TextDelta,
    UsageDelta,
)
from llm.wire.items import Event, Item, text_of
from llm.wire.response import ResponseBuilder

_REASONING = "parley:resumed reasoning"
_MESSAGE = "parley:resumed message"
_ASIDE = (StartDelta, UsageDelta, FinishDelta, CloseDelta, ProofDelta, AnnotationDelta)


class Resumption:
    """Stands between a provider call's deltas and the builder, for the first call."""

    def __init__(self, builder: ResponseBuilder, partial: Sequence[Item]) -> None:
        self._builder = builder
        self._events: list[Event] = []
        self._kept = ""  # text of the message gone on with; "" where there is none
        self._reasoning_id = ""
        self._said = ""  # by the new answer
        self._key: Key = None  # of the new answer's message
        self._reasoning_keys: set[Key] = set()
        self._reopen([item for item in partial if item["type"] != "function_call"])

    def start(self) -> list[Event]:
        """What is told again of the interrupted step."""
        return self._take()

    def feed(self, deltas: list[Delta]) -> list[Event]:
        if not self._kept:
            return self._builder.feed([self._renamed(delta) for delta in deltas])
        for delta in deltas:
            self._compare(delta)
        return self._take()

    def end(self) -> list[Event]:
        """The new answer is over; it may have been shorter than what was kept."""
        if self._kept:
            self._diverge()
        return self._take()

    def _reopen(self, partial: list[Item]) -> None:
        spoken = [item for item in partial if text_of(item)]
        match partial:
            case [{"type": "message"} as said] if spoken:
                self._go_on_with(said)
            case [{"type": "reasoning"} as thought, {"type": "message"} as said] if (
                spoken
            ):
                self._events += self._builder.reopen(_REASONING, thought)
                self._reasoning_id = thought["id"]
                self._go_on_with(said)
            case _:
                for number, item in enumerate(spoken):
                    key = f"{_MESSAGE} {number}"
                    self._events += self._builder.reopen(key, item)
                    self._events += self._builder.interrupt(key)

    def _go_on_with(self, said: Item) -> None:
        self._kept = text_of(said)
        self._events += self._builder.reopen(_MESSAGE, said)

    def _compare(self, delta: Delta) -> None:
        match delta:
            case ReasoningDelta(key) if self._reasoning_id and self._kept:
                self._reasoning_keys.add(key)  # it was told before the interruption
            case ProofDelta(key, raw) if key in self._reasoning_keys:
                self._builder.proofs[self._reasoning_id] = raw
            case TextDelta(key) if self._kept and self._key in (None, key):
                self._key = key
                self._say(delta)
            case ProofDelta(key) if key != self._key and self._kept:
                self._diverge()
                self._pass(delta)
            case _ if isinstance(delta, _ASIDE):
                self._pass(delta)
            case _:
                if self._kept:
                    self._diverge()
                self._pass(delta)

    def _say(self, delta: TextDelta) -> None:
        self._said += delta.text
        if self._said.startswith(self._kept):
            beyond, self._kept = self._said[len(self._kept) :], ""
            if beyond:
                self._pass(TextDelta(_MESSAGE, beyond))
        elif not self._kept.startswith(self._said):
            self._diverge()

    def _diverge(self) -> None:
        key, self._key, self._kept = self._key, None, ""
        self._events += self._builder.interrupt(_MESSAGE)
        if self._said:
            self._events += self._builder.feed([TextDelta(key, self._said)])

    def _pass(self, delta: Delta) -> None:
        if isinstance(delta, CloseDelta) and self._kept:
            return  # it closes what is not opened anew
        self._events += self._builder.feed([self._renamed(delta)])

    def _renamed(self, delta: Delta) -> Delta:
        """The new answer's message goes by the name of the one it goes on with."""
        if self._key is None or getattr(delta, "key", None) != self._key:
            return delta
        match delta:
            case TextDelta():
                return TextDelta(_MESSAGE, delta.text)
            case ProofDelta():
                return ProofDelta(_MESSAGE, delta.raw)
            case CloseDelta():
                return CloseDelta(_MESSAGE, delta.complete)
            case AnnotationDelta():
                return AnnotationDelta(_MESSAGE, delta.annotation)
        return delta

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events
