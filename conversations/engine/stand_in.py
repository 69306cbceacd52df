"""What a follower is told from rows while the log itself cannot be read.

Once a second a run writes what it has said so far, with the number of the last event
that said it. Beyond what a follower knows of that, it is told the difference: the same
items and texts in fewer events. Where a text, or an item, is whole, its event stands
where the run's did: what tells a text stands before all that the run says later, and an
item begins before all of its text. So when the log is back, or another process has it,
the follower goes on wherever it was cut off and has missed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain

from django.utils import timezone

from conversations.engine.log import Entry, Position, TurnLog
from conversations.models import Item, Turn
from llm.wire.deltas import CloseDelta, TextDelta
from llm.wire.items import Event, text_of
from llm.wire.items import Item as ItemPayload
from llm.wire.response import ResponseBuilder

LATE = timedelta(seconds=2)  # after its rows, the log has had its time to tell the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A running turn as its rows know it."""

    turn_id: str
    model: str
    created_at: int
    epoch: int
    sequence: int  # of the last event of which the rows tell
    done: Sequence[ItemPayload]
    #: Numbers of the events that told those done; None where an earlier epoch did, and
    #: this one at its beginning.
    ends: Sequence[int | None]
    open: Sequence[ItemPayload]


@dataclass(frozen=True, slots=True)
class Seen:
    over: Sequence[str]
    standing: dict[str, Standing] = field(default_factory=dict)


def look(turn_ids: Sequence[str], wanted: Sequence[str]) -> Seen:
    """Which of the turns are over, and how those `wanted` stand. Synchronous."""
    over = (
        Turn.objects.filter(pk__in=turn_ids, finished_at__lt=timezone.now() - LATE)
        .exclude(status__in=Turn.UNFINISHED)
        .values_list("pk", flat=True)
    )
    running = Turn.objects.filter(pk__in=wanted, status=Turn.Status.RUNNING)
    running = running.select_related("language_model__provider")
    return Seen(list(over), {turn.pk: _standing(turn) for turn in running})


def _standing(turn: Turn) -> Standing:
    sequence = turn.last_sequence or 0
    # What has been written since the turn was read, it still has as open.
    rows = [
        row
        for row in Item.objects.filter(turn=turn, origin=Item.Origin.OUTPUT)
        if (row.epoch, row.sequence or 0) <= (turn.epoch, sequence)
    ]
    return Standing(
        turn_id=turn.pk,
        model=turn.language_model.public_name if turn.language_model else "",
        created_at=int(turn.created_at.timestamp()),
        epoch=turn.epoch,
        sequence=sequence,
        done=[row.payload for row in rows],
        ends=[row.sequence if row.epoch == turn.epoch else None for row in rows],
        open=turn.partial or [],
    )


def lengthen(log: TurnLog, standing: Standing) -> bool:
    """Have the log's followers told what the rows know beyond its entries.

    False where that is nothing, or where it cannot be told apart.
    """
    last = log.stand_in[-1][-1] if log.stand_in else None
    if last is None and log.entries:
        last = log.entries[-1]
    if last and last.place >= Position(standing.epoch, standing.sequence):
        return False
    if last and last.epoch != standing.epoch:
        return False  # the log begins anew when it is back
    told = _Told.of([*log.entries, *chain.from_iterable(log.stand_in)])
    next_one = last.sequence + 1 if last else 0
    new: list[Sequence[Entry]] = []
    for events, end in _events_beyond(told, standing):
        if batch := list(_placed(log.turn_id, standing.epoch, events, next_one, end)):
            new.append(batch)
            next_one = batch[-1].sequence + 1
    log.stand_in = [*log.stand_in, *new]
    return bool(new)


def _placed(
    turn_id: str, epoch: int, events: Sequence[Event], first: int, end: int | None
) -> Iterator[Entry]:
    """Events that go on at `first`, with numbers. With an `end`, an item begins as soon
    as it can, and all that tells of its content stands as late as it can."""
    late = 0 if end is None else end + 1 - len(events)
    is_head = True
    for number, event in enumerate(events):
        is_head = is_head and event["type"].endswith(".added")
        sequence = first + number if end is None or is_head else late + number
        if sequence >= first:  # else it was told
            event = {**event, "sequence_number": sequence}
            yield Entry.of(turn_id, Position(epoch, sequence), event)


@dataclass(slots=True)
class _Told:
    """What some entries have told: whole items, and how much of the open ones."""

    is_begun: bool = False
    done: int = 0
    #: Pieces of open items, by index.
    texts: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> _Told:
        told = cls(is_begun=bool(entries))
        for entry in entries:
            match entry.type:
                case "response.output_item.added":
                    told.texts[entry.event["output_index"]] = []
                case "response.output_text.delta":
                    event = entry.event
                    told.texts[event["output_index"]].append(event["delta"])
                case "response.output_item.done":
                    told.texts.pop(entry.event["output_index"], None)
                    told.done += 1
        return told


def _events_beyond(
    told: _Told, standing: Standing
) -> Iterator[tuple[Sequence[Event], int | None]]:
    """Events that belong together, and the number of the last; None where they stand as
    the run told them, one after another."""
    builder = ResponseBuilder(
        id=standing.turn_id, model=standing.model, created_at=standing.created_at
    )
    beginning = builder.start()
    if not told.is_begun:
        yield beginning, None
    items = [*standing.done, *standing.open]
    ends = [*standing.ends, *(standing.sequence for _ in standing.open)]
    builder.restore(items[: told.done], None)
    for index, item in enumerate(items[told.done :], told.done):
        is_done = index < len(standing.done)
        if (pieces := told.texts.get(index)) is not None:
            more = _longer(builder, item, "".join(pieces), is_done=is_done)
            if more is None:
                return
            yield more, ends[index]
        elif is_done:
            yield builder.add(item), ends[index]
        elif item["type"] == "message" and text_of(item):
            yield builder.reopen(index, item), ends[index]
        else:
            return  # it is told when it is done


def _longer(
    builder: ResponseBuilder, item: ItemPayload, told: str, *, is_done: bool
) -> list[Event] | None:
    """What comes after `told` in an open message. None where it is none that can grow
    so: it has several parts, or another text."""
    text = text_of(item)
    if item["type"] != "message" or not told or not text.startswith(told):
        return None
    parts = [{**part, "text": told} for part in item["content"]]
    if len(parts) != 1 or parts[0]["type"] != "output_text":
        return None
    builder.reopen("open", {**item, "content": parts})
    events: list[Event] = []
    if beyond := text[len(told) :]:
        events += builder.feed([TextDelta("open", beyond)])
    if is_done:
        events += builder.feed([CloseDelta("open")])
    return events
