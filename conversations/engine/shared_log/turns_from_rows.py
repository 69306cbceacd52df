"""Running and waiting turns as their rows describe them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import models

from conversations.engine.database.sql import Moment
from conversations.engine.event_log import Position
from conversations.engine.loading.approvals import question_payload
from conversations.models import Item, Question, Turn
from llm.wire.items import Item as ItemPayload

LATE = 1.0  # seconds that the log has, after the rows, to publish the end
_RUNNING = (Turn.Status.RUNNING, Turn.Status.WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """A running or waiting turn as its rows describe it."""

    turn_id: str
    model: str
    created_at: int
    epoch: int
    sequence: int  # of the last event that the rows include
    done: Sequence[ItemPayload]
    #: Sequence numbers of the events that published `done`; None for items of an
    #: earlier epoch, which this one has published at its beginning.
    ends: Sequence[int | None]
    open: Sequence[ItemPayload]
    #: By index, where an earlier epoch has published an item of `done`.
    earlier_positions: Mapping[int, Position] = field(default_factory=dict)
    questions: Sequence[Mapping[str, Any]] = ()  # open questions, as in events
    is_waiting: bool = False  # the turn waits only for their answers


@dataclass(frozen=True, slots=True)
class StoredTurns:
    over: Sequence[str]
    turns: dict[str, StoredTurn] = field(default_factory=dict)


def load_turns(
    positions: Mapping[str, Position], questions: Collection[str] = frozenset()
) -> StoredTurns:
    """Load which of the turns are over or deleted, and the turns of which rows know
    more than their logs: more output, or a question that is not in `questions`.
    Synchronous; three queries if there are none."""
    over = _find_over(positions)
    with_new_questions = set(
        Question.objects.open()
        .filter(tool_call__turn_id__in=positions)
        .exclude(pk__in=questions)
        .values_list("tool_call__turn_id", flat=True)
    )
    running = Turn.objects.filter(pk__in=positions, status__in=_RUNNING)
    ahead = [
        turn_id
        for turn_id, epoch, sequence in running.values_list(
            "pk", "epoch", "last_sequence"
        )
        if turn_id in with_new_questions
        or _is_ahead(epoch, sequence, positions[turn_id])
    ]
    if not ahead:
        return StoredTurns(over)
    turns = running.filter(pk__in=ahead).select_related("language_model__provider")
    return StoredTurns(over, {turn.pk: _load_turn(turn) for turn in turns})


def _find_over(turn_ids: Collection[str]) -> list[str]:
    rows = Turn.objects.filter(pk__in=turn_ids)
    unfinished = models.Q(status__in=Turn.UNFINISHED)
    # Not what ended in the future: the clock of the process that ran it is ahead, and
    # its end would be waited for until then.
    ended_just_now = models.Q(
        finished_at__range=(Moment(-LATE).expression, Moment(LATE).expression)
    )
    going_on = rows.filter(unfinished | ended_just_now).values_list("pk", flat=True)
    return list(set(turn_ids).difference(going_on))


def _is_ahead(epoch: int, sequence: int | None, known: Position) -> bool:
    """False for a run that has started and not written yet: subscribers have the text
    from which it continues."""
    if known.sequence < 0:
        return True
    return sequence is not None and (epoch, sequence) > known


def _load_turn(turn: Turn) -> StoredTurn:
    sequence = turn.last_sequence or 0
    # An item stored after the turn was read is still in its `partial`.
    rows = [
        row
        for row in Item.objects.filter(turn=turn, origin=Item.Origin.OUTPUT)
        if (row.epoch, row.sequence or 0) <= (turn.epoch, sequence)
    ]
    calls = {row.payload.get("call_id"): row.payload for row in rows}
    questions = Question.objects.open().filter(tool_call__turn=turn)
    return StoredTurn(
        turn_id=turn.pk,
        model=turn.language_model.public_name if turn.language_model else "",
        created_at=int(turn.created_at.timestamp()),
        epoch=turn.epoch,
        sequence=sequence,
        done=[row.payload for row in rows],
        ends=[row.sequence if row.epoch == turn.epoch else None for row in rows],
        # Before the first write of a run, `partial` is that of an earlier run.
        open=turn.partial or [] if turn.last_sequence is not None else [],
        earlier_positions={
            index: Position(row.epoch, row.sequence or 0)
            for index, row in enumerate(rows)
            if row.epoch < turn.epoch
        },
        questions=[
            question_payload(question, calls[question.tool_call.call_id])
            for question in questions.select_related("tool_call", "server")
            if question.tool_call.call_id in calls
        ],
        is_waiting=turn.status == Turn.Status.WAITING,
    )
