"""Entries made from rows for subscribers while the rows are ahead of the event log:
it is unavailable, refuses writes, or has lost events.

Once a second a run stores a snapshot with the sequence number of the last event in it.
A subscriber gets the difference between the snapshot and the entries it has: the same
items and texts in fewer events. An event that completes a text or an item has the same
sequence number as the run's own: an item is added before all of its text, and its text
comes before everything that the run publishes later. So when the log is back, or
another process has it, the subscriber continues from any position without a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, dropwhile
from typing import Literal

from conversations.engine.event_log import (
    Entry,
    Position,
    TurnLog,
    find_earlier_position,
)
from conversations.engine.shared_log.turns_from_rows import StoredTurn
from llm.wire.deltas import (
    CloseDelta,
    Delta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.items import Event
from llm.wire.items import Item as ItemPayload
from llm.wire.response_builder import ResponseBuilder

LATEST = 50  # latest entries that are searched for open questions
_QUESTION_EVENT = "parley:approval.requested"


def last_position(log: TurnLog) -> Position:
    """The last position that the log's subscribers can reach; sequence -1 if there is
    none."""
    if log.fallback:
        return log.fallback[-1][-1].log_position
    return Position(log.epoch, len(log.entries) - 1)


def recent_question_ids(log: TurnLog) -> frozenset[str]:
    """Ids of questions among the latest entries. A question further back is missing
    here; `extend_fallback` looks through all entries."""
    latest = [*log.entries[-LATEST:], *chain.from_iterable(log.fallback)]
    questions = [entry.event for entry in latest if entry.type == _QUESTION_EVENT]
    return frozenset(event["question"]["id"] for event in questions)


def extend_fallback(log: TurnLog, turn: StoredTurn) -> bool:
    """Add entries for what the rows know beyond the log's entries.

    False if there is nothing to add, or if the rows do not continue the entries.
    """
    last, before = last_position(log), log.fallback
    is_known = last.sequence >= 0 and last >= (turn.epoch, turn.sequence)
    if is_known and not (turn.questions and last.epoch == turn.epoch):
        return False
    entries = [*log.entries, *chain.from_iterable(before)]
    if last.sequence < 0 or last.epoch < turn.epoch:
        # A later run has claimed the turn; its events are complete by themselves.
        entries, before, last = [], (), Position(turn.epoch, -1)
    new: list[Sequence[Entry]] = []
    next_one = last.sequence + 1
    for events, end in _events_beyond(_PublishedState.of(entries), turn):
        if batch := list(_number_events(turn, events, next_one, end)):
            new.append(batch)
            next_one = batch[-1].sequence + 1
    log.fallback = [*before, *new]
    return bool(new)


def _number_events(
    turn: StoredTurn, events: Sequence[Event], first: int, end: int | None
) -> Iterator[Entry]:
    """Number the events from `first` on. With an `end`, an item is added as early as
    possible, and the events of its content are numbered as late as possible."""
    late = 0 if end is None else end + 1 - len(events)
    is_head = True
    for number, event in enumerate(events):
        is_head = is_head and event["type"].endswith(".added")
        sequence = first + number if end is None or is_head else late + number
        if sequence >= first:  # otherwise it was published
            event = {**event, "sequence_number": sequence}
            earlier = (
                find_earlier_position(event, turn.earlier_positions)
                if turn.earlier_positions
                else None
            )
            position = Position(turn.epoch, sequence)
            yield Entry.of(turn.turn_id, position, event, earlier)


@dataclass(slots=True)
class _OpenItem:
    """The published content of an item that is not done. A call has one part: its
    arguments."""

    parts: list[list[str]] = field(default_factory=list)  # each part in pieces
    is_closed: bool = False  # whether the last part is


@dataclass(slots=True)
class _PublishedState:
    """What some entries have published: completed items, the content of open ones, and
    questions."""

    is_begun: bool = False
    done: int = 0
    questions: set[str] = field(default_factory=set)
    open: dict[int, _OpenItem] = field(default_factory=dict)  # by index

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> _PublishedState:
        published = cls(is_begun=bool(entries))
        for entry in entries:
            published._note(entry)
        return published

    def _note(self, entry: Entry) -> None:
        if entry.type == _QUESTION_EVENT:
            self.questions.add(entry.event["question"]["id"])
        if entry.type not in _OF_ITEMS:
            return
        event = entry.event
        index: int = event["output_index"]
        if entry.type == "response.output_item.added":
            self.open[index] = _OpenItem()
        elif entry.type == "response.output_item.done":
            self.open.pop(index, None)
            self.done += 1
        elif entry.type in _PART_ADDED:
            self.open[index].parts.append([])
            self.open[index].is_closed = False
        elif entry.type in _PART_DONE:
            self.open[index].is_closed = True
        else:
            parts = self.open[index].parts or [[]]  # a call's part has no added event
            parts[-1].append(event["delta"])
            self.open[index].parts = parts


_PART_ADDED = frozenset(
    {"response.content_part.added", "response.reasoning_summary_part.added"}
)
_PART_DONE = frozenset(
    {
        "response.content_part.done",
        "response.reasoning_summary_part.done",
        "response.function_call_arguments.done",
    }
)
_OF_ITEMS = (
    _PART_ADDED
    | _PART_DONE
    | {
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
    }
)


def _events_beyond(
    published: _PublishedState, turn: StoredTurn
) -> Iterator[tuple[Sequence[Event], int | None]]:
    """Yield groups of events with the number of their last event; None where their
    numbers simply continue."""
    builder = ResponseBuilder(
        id=turn.turn_id, model=turn.model, created_at=turn.created_at
    )
    beginning = builder.start()
    if not published.is_begun:
        yield beginning, None
    items = [*turn.done, *turn.open][: _count_publishable(turn)]
    ends = [*turn.ends, *(turn.sequence for _ in turn.open)]
    builder.restore(items[: published.done], None)
    interleaved: list[Event] = []
    for index, item in enumerate(items[published.done :], published.done):
        is_done = index < len(turn.done)
        begun = published.open.get(index)
        if is_done and begun is None:
            more: list[Event] | None = builder.add(item)
        else:
            more = _continue_item(builder, item, begun, is_done=is_done)
        if more is None:
            if begun is not None or interleaved:
                return
            continue
        interleaved += more
        if not _is_interleaved(turn, index) or index == len(items) - 1:
            yield interleaved, ends[index]
            interleaved = []
    if question_events := _questions(builder, published, turn):
        yield question_events, None


def _count_publishable(turn: StoredTurn) -> int:
    """The number of items after which the log can continue without a loss.

    Of several open items the rows do not say which text was published when. They come
    from the log, or when at most one is open.
    """
    count = len(turn.done)
    if len(turn.open) <= 1:
        return count + len(turn.open)
    while count and _is_interleaved(turn, count - 1):
        count -= 1
    return count


def _is_interleaved(turn: StoredTurn, index: int) -> bool:
    """Whether this run has taken the item over and interrupted it: then it has ended
    after items behind it had begun."""
    if index >= len(turn.done) or turn.ends[index] is None:
        return False
    return bool(turn.done[index].get("parley:interrupted"))


def _questions(
    builder: ResponseBuilder, published: _PublishedState, turn: StoredTurn
) -> Sequence[Event]:
    new = [each for each in turn.questions if each["id"] not in published.questions]
    events = [
        e for each in new for e in builder.extension(_QUESTION_EVENT, question=each)
    ]
    if new and turn.is_waiting:
        events += builder.extension("parley:turn.waiting", reason="approval")
    return events


def _continue_item(
    builder: ResponseBuilder,
    item: ItemPayload,
    open_item: _OpenItem | None,
    *,
    is_done: bool,
) -> list[Event] | None:
    """The events that continue an item beyond `open_item`, or begin it if that is None.
    None if the item can only be published when it is done, or if its text does not
    begin with the published text."""
    parts = _parts(item)
    texts = ["".join(pieces) for pieces in open_item.parts] if open_item else []
    if not _begins(parts, texts) or not (is_done or any(text for text, _ in parts)):
        return None
    key = item["id"]
    emptied: ItemPayload = {name: [] for name in ("summary", "content") if name in item}
    events = builder.reopen(key, {**item, **emptied})
    if open_item is not None:
        builder.feed(
            [make(text) for text, (_, make) in zip(texts, parts, strict=False)]
        )
        events = []
    beyond = builder.feed(_rest(parts, texts))
    if is_done:
        beyond += builder.feed([CloseDelta(key)])
        # The complete item, with what no delta contains: annotations, a phase, a
        # status.
        beyond[-1] = {**beyond[-1], "item": item}
    return events + _drop_published(beyond, open_item)


Part = tuple[str, Callable[[str], Delta]]  # its text, and how to make a delta


def _parts(item: ItemPayload) -> list[Part]:
    key = item["id"]
    if item["type"] == "function_call":
        return [(item["arguments"], partial(ToolCallDelta, key, "", ""))]
    if item["type"] not in ("message", "reasoning"):
        return []
    parts = [*item.get("summary", []), *item.get("content", [])]
    found = [_part(key, number, part) for number, part in enumerate(parts)]
    return [part for part in found if part is not None]


def _part(key: str, number: int, part: ItemPayload) -> Part | None:
    match part["type"]:
        case "output_text":
            return part["text"], partial(TextDelta, key)
        case "refusal":
            return part["refusal"], partial(RefusalDelta, key)
        case "summary_text":
            kind: Literal["summary", "text"] = "summary"
        case "reasoning_text":
            kind = "text"
        case _:
            return None
    return part["text"], partial(ReasoningDelta, key, kind=kind, part=number)


def _begins(parts: Sequence[Part], texts: Sequence[str]) -> bool:
    """Whether an item with these parts begins with these texts."""
    if len(texts) > len(parts):
        return False
    whole = all(parts[n][0] == text for n, text in enumerate(texts[:-1]))
    return whole and (not texts or parts[len(texts) - 1][0].startswith(texts[-1]))


def _rest(parts: Sequence[Part], texts: Sequence[str]) -> list[Delta]:
    """The deltas that complete an item that begins with these texts."""
    known = [*map(len, texts), *(0 for _ in parts[len(texts) :])]
    pairs = zip(parts, known, strict=True)
    return [make(text[size:]) for (text, make), size in pairs if text[size:]]


def _drop_published(events: list[Event], open_item: _OpenItem | None) -> list[Event]:
    """Drop the beginning, or the end, of a part that is published already."""
    if open_item is None or not open_item.parts:
        return events
    if open_item.is_closed:
        return list(dropwhile(_closes_part, events))
    if not any(open_item.parts[-1]):
        return list(dropwhile(lambda event: event["type"] in _PART_ADDED, events))
    return events


def _closes_part(event: Event) -> bool:
    type: str = event["type"]
    return type.endswith(".done") and type != "response.output_item.done"
