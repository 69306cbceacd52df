"""The entries of a turn's log as one stream, also where another run takes it over.

In: entries as the engine sends them, with a reset where a later epoch repeats items
that the subscriber may have in part. Out: the same without resets and repetitions. What
a client has received cannot be taken back, so what comes again must begin with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from conversations.engine import Entry
from conversations.engine.packed_events import entry_of
from llm.errors import CutOff
from llm.wire.items import Event, Item
from llm.wire.response_builder import TERMINAL

_RESET = "parley:step.reset"
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"
_DELTA = ".delta"
_PARTS = ("content_index", "summary_index", "annotation_index")
_Key = tuple[str | int | None, ...]


@dataclass(slots=True)
class ContinuedEntries:
    """One stream for a client to which `is_shown` tells which items are sent.

    Deltas are noted as they are and only parsed after a reset, which is rare.
    """

    _is_shown: Callable[[Item], bool]
    #: Types of events without an item.
    _begun: set[str] = field(init=False, default_factory=set)
    #: By output index.
    _added: dict[int, Item] = field(init=False, default_factory=dict)
    _done: dict[int, Item] = field(init=False, default_factory=dict)
    #: Events since all items were done.
    _unfinished: list[Event | bytes] = field(init=False, default_factory=list)
    _repetition: _Repetition | None = field(init=False, default=None)

    def feed(self, entries: Iterable[Entry]) -> list[Entry]:
        """The entries to send. Raises CutOff where they do not continue the stream."""
        return [new for entry in entries for new in self._convert(entry)]

    def _convert(self, entry: Entry) -> Iterator[Entry]:
        if entry.type == _RESET:
            self._restart(entry.event["output_index"])
            return
        new = entry if self._repetition is None else self._repetition.convert(entry)
        if new is not None:
            self._note(new)
            yield new

    def _note(self, entry: Entry) -> None:
        if entry.type.endswith(_DELTA):
            self._unfinished.append(entry.data)
            return
        event = entry.event
        index = event.get("output_index")
        if index is None:
            self._begun.add(entry.type)
        elif entry.type == _DONE:
            self._done[index] = event["item"]
            if len(self._done) == len(self._added):
                self._unfinished.clear()
        else:
            self._unfinished.append(event)
            if entry.type == _ADDED:
                self._added[index] = event["item"]

    def _restart(self, index: int) -> None:
        """Expect the items from `index` on again; the client never saw some of them."""
        hidden = {n for n, item in self._added.items() if not self._is_shown(item)}
        self._added = {n: i for n, i in self._added.items() if n not in hidden}
        self._done = {n: i for n, i in self._done.items() if n not in hidden}
        sent = [
            orjson.loads(each) if isinstance(each, bytes) else each
            for each in self._unfinished
        ]
        self._unfinished = [e for e in sent if e["output_index"] not in hidden]
        self._repetition = _Repetition(
            self._begun,
            {n: item for n, item in self._added.items() if n >= index},
            self._done,
            self._unfinished,
        )


class _Repetition:
    """Compares what comes again with what was sent."""

    def __init__(
        self,
        begun: set[str],
        added: dict[int, Item],
        done: dict[int, Item],
        unfinished: Iterable[Event | bytes],
    ) -> None:
        self._begun = frozenset(begun)
        self._added, self._done = added, {n: i for n, i in done.items() if n in added}
        self._awaited = set(added)
        self._texts: dict[_Key, str] = {}
        self._matched: dict[_Key, int] = {}  # characters that came again
        for event in unfinished:
            if isinstance(event, bytes) or event["output_index"] not in added:
                continue
            key = _key_of(event)
            self._texts[key] = self._texts.get(key, "") + event.get("delta", "")

    def convert(self, entry: Entry) -> Entry | None:
        """The entry as it is to be sent; None if it was. Raises CutOff."""
        event = entry.event
        index = event.get("output_index")
        if index is None:
            if entry.type in TERMINAL and entry.type != "response.failed":
                _check(not self._awaited)
            return None if entry.type in self._begun else entry
        if index not in self._added:
            return entry
        if entry.type == _ADDED:
            _check(event["item"]["id"] == self._added[index]["id"])
            return None
        if entry.type == _DONE:
            self._awaited.discard(index)
        if index in self._done:
            if entry.type == _DONE:
                _check(event["item"] == self._done[index])
            return None
        if entry.type == _DONE:
            lengths = (n for n in self._texts if n[1] == index)
            _check(all(self._left(key) == 0 for key in lengths))
            return entry
        return self._convert_part(entry, event)

    def _convert_part(self, entry: Entry, event: Event) -> Entry | None:
        key = _key_of(event)
        if key not in self._texts:
            return entry
        if not (left := self._left(key)):
            return entry if "delta" in event else None
        start, delta = self._matched.get(key, 0), event["delta"]
        _check(self._texts[key].startswith(delta[:left], start))
        self._matched[key] = start + min(left, len(delta))
        if len(delta) <= left:
            return None
        rest = {**event, "delta": delta[left:]}
        return entry_of(entry.turn_id, (entry.epoch, entry.sequence), rest)

    def _left(self, key: _Key) -> int:
        """Characters that were sent and have not come again."""
        return len(self._texts[key]) - self._matched.get(key, 0)


def _key_of(event: Event) -> _Key:
    return event["type"], event["output_index"], *map(event.get, _PARTS)


def _check(is_the_same: bool) -> None:
    if not is_the_same:
        raise CutOff(
            "Another process has begun this answer anew; retrieve the response by its"
            " id, or send the request again."
        )
