"""What a follower is told from rows while the log itself cannot be read.

Once a second a run writes what it has said so far, with the number of the last event
that said it. Beyond what a follower knows of that, it is told the difference: the same
items and texts in fewer events, of which the last stands where the run's did. So when
the log is back, the follower goes on there and has missed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

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
    rows = list(Item.objects.filter(turn=turn, origin=Item.Origin.OUTPUT))
    told = [row.sequence for row in rows if row.epoch == turn.epoch]
    return Standing(
        turn_id=turn.pk,
        model=turn.language_model.public_name if turn.language_model else "",
        created_at=int(turn.created_at.timestamp()),
        epoch=turn.epoch,
        sequence=max([turn.last_sequence or 0, *told]),
        done=[row.payload for row in rows],
        open=turn.partial or [],
    )


def lengthen(log: TurnLog, standing: Standing) -> bool:
    """Have the log's followers told what the rows know beyond its entries.

    False where that is nothing, or where it cannot be told apart.
    """
    known = [*log.entries, *log.stand_in]
    if known and known[-1].place >= Position(standing.epoch, standing.sequence):
        return False
    if known and known[-1].place.epoch != standing.epoch:
        return False  # the log begins anew when it is back
    first = known[-1].place.sequence + 1 if known else 0
    events = _events_beyond(_Told.of(known), standing)
    if not events or len(events) > standing.sequence - first + 1:
        return False
    for number, event in enumerate(events):
        is_last = number == len(events) - 1
        sequence = standing.sequence if is_last else first + number
        event = {**event, "sequence_number": sequence}
        place = Position(standing.epoch, sequence)
        log.stand_in = [*log.stand_in, Entry.of(log.turn_id, place, event)]
    return True


@dataclass(slots=True)
class _Told:
    """What some entries have told: whole items, and how much of the open one."""

    is_begun: bool = False
    done: int = 0
    texts: dict[int, str] = field(default_factory=dict)  # of open items, by index

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> _Told:
        told = cls(is_begun=bool(entries))
        for entry in entries:
            match entry.type:
                case "response.output_item.added":
                    told.texts[entry.event["output_index"]] = ""
                case "response.output_text.delta":
                    event = entry.event
                    told.texts[event["output_index"]] += event["delta"]
                case "response.output_item.done":
                    told.texts.pop(entry.event["output_index"], None)
                    told.done += 1
        return told


def _events_beyond(told: _Told, standing: Standing) -> list[Event]:
    builder = ResponseBuilder(
        id=standing.turn_id, model=standing.model, created_at=standing.created_at
    )
    events = [] if told.is_begun else builder.start()
    if told.is_begun:
        builder.start()
    items = [*standing.done, *standing.open]
    builder.restore(items[: told.done], None)
    for index, item in enumerate(items[told.done :], told.done):
        is_done = index < len(standing.done)
        if (text := told.texts.get(index)) is not None:
            more = _longer(builder, item, text, is_done=is_done)
            if more is None:
                return events
            events += more
        elif is_done:
            events += builder.add(item)
        elif item["type"] == "message" and text_of(item):
            events += builder.reopen(index, item)
        else:
            break  # it is told when it is done
    return events


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
