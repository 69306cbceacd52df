"""Database writes of the turn protocol. Each is one transaction that requires the
claim's epoch.

Synchronous; called through `database.Database`. A write that finds no row of its epoch
raises `StaleEpoch`: another run has claimed the turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.core.files.base import ContentFile
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from conversations.engine import background_store as background
from conversations.engine import enqueue, message_bounds
from conversations.engine.database import sql
from conversations.engine.database.durable_commit import sync_on_commit
from conversations.engine.database.sql import LAPSED, Moment
from conversations.engine.event_log import StaleEpoch
from conversations.models import (
    AlreadyDecided,
    Attachment,
    Item,
    Question,
    ToolCall,
    Turn,
)
from conversations.turns.attachments import store
from llm.db.compiled_queries import CompiledInsert
from llm.http.client import ProviderCall
from llm.models import ModelCall
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.items import ProviderData
from llm.wire.request import BackgroundResponse
from tools.execute import CallOutcome

BEATS = 500  # runs in a statement
SLOW_WRITE = 1.0  # seconds; a write that takes longer renews the lease
LARGE_WRITE = 1_000_000  # characters; a larger write may idle longer in its transaction


@dataclass(frozen=True, slots=True)
class Claim:
    """This process may run the turn until the lease expires; every write names
    `epoch`."""

    turn_id: str
    conversation_id: str
    epoch: int
    claims: int = 1  # since the turn last progressed or waited for a person
    taken_up: int = 1  # claims since it last waited
    seconds_left: float | None = None  # until its deadline; None: the full time


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """A response that a provider continues in the background, as a turn's row stores
    it."""

    response: BackgroundResponse
    after: int  # items stored when it was requested; it answers exactly these

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> ProviderResponse | None:
        if data is None:
            return None
        return cls(BackgroundResponse(data["id"], data["issuer"]), data["after"])

    def to_dict(self) -> dict[str, Any]:
        response = self.response
        return {"id": response.id, "issuer": response.issuer, "after": self.after}


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedModelCall:
    """A finished provider call, for its row."""

    route: Route
    call: ProviderCall
    step: int
    cancelled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProgress:
    """What is new in a turn since its last write."""

    #: New items with their proof and the sequence number that published them as done.
    items: Sequence[tuple[ItemPayload, ProviderData | None, int]] = ()
    first_position: int = 0
    last_sequence: int = 0  # number of the last event so far
    calls_made: Sequence[FinishedModelCall] = ()
    executing: Sequence[ItemPayload] = ()
    background: Collection[str] = ()  # call ids of background calls
    outcomes: Sequence[CallOutcome] = ()
    is_durable: bool = False  # includes calls of tools that must not run twice
    #: Keys of rows whose results these items deliver to the model.
    delivered: Sequence[int] = ()
    usage: Mapping[str, Any] | None = None
    ended_output: int | None = None  # as `ResponseBuilder` has it


class NotEnded(Exception):
    """The last provider call of a turn that should be completed has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    status: str
    response: Mapping[str, Any]
    error: Mapping[str, Any] | None  # as `errors.error_to_store` has it
    last_sequence: int
    called: bool  # tools were called
    progress: TurnProgress = field(default_factory=TurnProgress)
    abandoned: Collection[str] = ()  # ids of calls whose threads cannot be stopped


def _lease() -> Moment:
    return Moment(settings.TURN_LEASE)


def claim(turn_id: str, *, alone: bool = False) -> Claim | None:
    """Claim the turn. None if another process has claimed it, it is over or must wait
    for an earlier turn, or it is a suspect and `alone` is not set."""
    time, now = Moment(settings.TURN_DEADLINE), Moment()
    values = [_lease(), timezone.now(), time, turn_id, now, now]
    row = sql.first(sql.CLAIM_ALONE if alone else sql.CLAIM, values)
    if row is None:
        return None
    conversation_id, epoch, claims, fruitless, left, *times = row
    if left is None:
        left = _seconds(*times)
    else:  # the turn has waited for a person
        started = {"deadline_at": Moment(left), "seconds_left": None}
        sql.update_running(turn_id, epoch, started)
    return Claim(turn_id, conversation_id, epoch, fruitless, claims, left)


def _seconds(until: Any, now: Any) -> float:
    """Seconds between two times as the database returns them."""
    ends, begins = (
        datetime.fromisoformat(each) if isinstance(each, str) else each
        for each in (until, now)
    )
    return float((ends - begins).total_seconds())


def _turn_query(claim: Claim) -> QuerySet[Turn]:
    return Turn.objects.filter(
        pk=claim.turn_id, epoch=claim.epoch, status=Turn.Status.RUNNING
    )


def _update(claim: Claim, changed: Mapping[str, Any]) -> None:
    """Raises StaleEpoch."""
    if sql.update_running(claim.turn_id, claim.epoch, changed) is None:
        raise StaleEpoch


@contextmanager
def _writing(written: object) -> Iterator[None]:
    """A transaction. PostgreSQL counts a transaction as idle while it receives data,
    and ends it after a few seconds: too early for tens of megabytes."""
    with transaction.atomic():
        if connection.vendor == "postgresql" and _length(written) > LARGE_WRITE:
            sql.allow_long_idle()
        yield


def _length(value: object) -> int:
    """Characters of all texts in it."""
    match value:
        case str():
            return len(value)
        case Mapping():
            return sum(map(_length, value.values()))
        case Sequence():
            return sum(map(_length, value))
    return 0


def advance(claim: Claim, progress: TurnProgress) -> None:
    """Raises StaleEpoch."""
    write = _prepare_write(claim, progress)
    changed: dict[str, Any] = {
        "lease_until": _lease(),
        "ended_output": progress.ended_output,
    }
    if progress.items:
        changed |= {
            "partial": None,
            "provider_response": None,
            "last_sequence": progress.last_sequence,
            "usage": progress.usage,
        }
    if progress.items or progress.outcomes:
        changed["claims_until_progress"] = claim.taken_up
    began = time.monotonic()
    with _writing(progress.items):
        if progress.is_durable:
            sync_on_commit()
        _update(claim, changed)
        write()
        if time.monotonic() - began > SLOW_WRITE:  # little of the lease would be left
            _update(claim, {"lease_until": _lease()})


def finish(claim: Claim, ending: Ending) -> str | None:
    """Store the end of the turn. Returns the id of the next turn that may run, if any.

    Raises StaleEpoch. Raises NotEnded, which leaves the turn to be claimed again,
    rather than present half an answer as complete.
    """
    if ending.status == Turn.Status.COMPLETED and ending.progress.ended_output is None:
        raise NotEnded("its last provider call is not on record as ended")
    write = _prepare_write(claim, ending.progress)
    with _writing(ending.progress.items):
        return _finish(claim, ending, write)


def _finish(claim: Claim, ending: Ending, write: Callable[[], None]) -> str | None:
    response = ending.response
    details = response["incomplete_details"] or {}
    _update(
        claim,
        {
            "status": ending.status,
            "usage": response["usage"],
            "error": ending.error,
            "incomplete_reason": details.get("reason", ""),
            "last_sequence": ending.last_sequence,
            "ended_output": ending.progress.ended_output,
            "partial": None,
            "provider_response": None,
            "lease_until": None,
            "finished_at": timezone.now(),
        },
    )
    write()
    if ending.called:
        _cancel_open_calls(claim, ending.abandoned)
    if details.get("reason") == Turn.HaltedBy.MAX_COST:
        message_bounds.halt_for_cost(claim.turn_id)
    if waiting := find_next_turn(claim.conversation_id):
        enqueue(waiting)
        return waiting
    return background.open_turn_for_results(claim.conversation_id)


_ABANDONED = (
    "The call was given up, but its thread cannot be stopped: what it does may still"
    " take effect."
)


def _cancel_open_calls(claim: Claim, abandoned: Collection[str]) -> None:
    """End the calls that still run or wait for a person, and their questions."""
    now = timezone.now()
    left = ToolCall.objects.filter(
        turn_id=claim.turn_id,
        blocking=True,
        state__in=[ToolCall.State.EXECUTING, ToolCall.State.AWAITING_APPROVAL],
    )
    if abandoned:
        left.filter(call_id__in=abandoned).update(
            state=ToolCall.State.ABANDONED, error=_ABANDONED, ended_at=now
        )
    left.update(state=ToolCall.State.CANCELLED, ended_at=now)
    Question.objects.open().filter(tool_call__turn_id=claim.turn_id).update(
        state=Question.State.CANCELLED, decided_at=now
    )


def find_next_turn(conversation_id: str) -> str | None:
    """The conversation's next claimable turn, if any."""
    found = sql.first(sql.CLAIMABLE_IN, [conversation_id, Moment()])
    return found[0] if found else None


_write_items = CompiledInsert(Item)


def _prepare_write(claim: Claim, progress: TurnProgress) -> Callable[[], None]:
    """Encode what is new, and return a function that writes it. Done before the
    transaction, which locks the turn and which PostgreSQL ends when it is idle, so that
    it does not wait while a long item is encoded."""
    return partial(_write, claim, progress, _prepare_items(claim, progress))


def _prepare_items(claim: Claim, progress: TurnProgress) -> Callable[[], None]:
    return _write_items.prepare(
        *(
            Item(
                turn_id=claim.turn_id,
                position=progress.first_position + number,
                origin=Item.Origin.OUTPUT,
                type=payload["type"],
                payload=payload,
                provider_data=proof,
                epoch=claim.epoch,
                sequence=sequence,
            )
            for number, (payload, proof, sequence) in enumerate(progress.items)
        )
    )


def _write(
    claim: Claim, progress: TurnProgress, write_items: Callable[[], None]
) -> None:
    write_items()
    for made in progress.calls_made:
        ModelCall.objects.record(
            made.call,
            made.route,
            turn_id=claim.turn_id,
            step=made.step,
            attempt=made.call.attempt,
            start=made.call.start,
            usage=made.call.usage,
            finish=made.call.finish,
            cancelled=made.cancelled,
        )
    if progress.executing or progress.outcomes or progress.delivered:
        _write_calls(claim, progress)


def _write_calls(claim: Claim, progress: TurnProgress) -> None:
    now = timezone.now()
    calls = ToolCall.objects.filter(turn_id=claim.turn_id)
    for call in progress.executing:
        begun = {
            "name": call["name"],
            "state": ToolCall.State.EXECUTING,
            "blocking": call["call_id"] not in progress.background,
            "started_at": now,
        }
        # A safe tool that a crash interrupted is executed again under the same call.
        ToolCall.objects.update_or_create(
            turn_id=claim.turn_id,
            call_id=call["call_id"],
            defaults={**begun, "attempts": F("attempts") + 1},
            create_defaults={**begun, "attempts": 1},
        )
    for outcome in progress.outcomes:
        row = calls.filter(call_id=outcome.call_id)
        if outcome.state == "background":
            continue  # the background run stores its outcome
        if outcome.accepted is not None:
            background.accept(row, outcome.accepted)
            continue
        row.update(
            state=outcome.state,
            output=outcome.output,
            error=outcome.error[:500],
            ended_at=now,
        )
        if outcome.full_text is not None:
            store_full_output(claim.conversation_id, outcome)
    if progress.delivered:
        delivered = ToolCall.objects.awaiting_delivery().filter(
            pk__in=progress.delivered
        )
        delivered.update(delivered_in=claim.turn_id)


def store_full_output(conversation_id: str, outcome: CallOutcome) -> None:
    """Store the full text of an output of which the model reads only the beginning."""
    assert outcome.full_text is not None
    content = outcome.full_text.encode()
    attachment = Attachment(
        conversation_id=conversation_id,
        name=f"{outcome.call_id}.txt",
        content_type="text/plain",
        size=len(content),
    )
    store(attachment, f"{attachment.pk}.txt", ContentFile(content))
    attachment.save()


def suspend(
    claim: Claim,
    progress: TurnProgress,
    new_questions: Sequence[tuple[ItemPayload, NewQuestion]],
    seconds_left: float | None = None,
) -> list[Question]:
    """End the run, and let the turn wait for a person. A decision starts another run,
    with the time that is left now.

    Returns the open questions; none if all were decided meanwhile, and then the turn
    can continue at once. Raises StaleEpoch.
    """
    write = _prepare_write(claim, progress)
    with _writing(progress.items):
        return _suspend(claim, progress, new_questions, write, seconds_left)


def _suspend(
    claim: Claim,
    progress: TurnProgress,
    new_questions: Sequence[tuple[ItemPayload, NewQuestion]],
    write: Callable[[], None],
    seconds_left: float | None,
) -> list[Question]:
    changed: dict[str, Any] = {
        "status": Turn.Status.WAITING,
        "lease_until": None,
        "deadline_at": None,
        "seconds_left": seconds_left,
        "claims": 0,
        "claims_until_progress": 0,
        "partial": None,
        "provider_response": None,
        "ended_output": progress.ended_output,
        "last_sequence": progress.last_sequence,
    }
    if progress.items:
        changed["usage"] = progress.usage
    _update(claim, changed)
    write()
    questions = [_question(claim, call, question) for call, question in new_questions]
    still_open = [q for q in questions if q.state == Question.State.OPEN]
    if not still_open:
        Turn.objects.filter(pk=claim.turn_id).update(status=Turn.Status.QUEUED)
    return still_open


def _question(claim: Claim, call: ItemPayload, new_question: NewQuestion) -> Question:
    row, _ = ToolCall.objects.update_or_create(
        turn_id=claim.turn_id,
        call_id=call["call_id"],
        defaults={
            "name": call["name"],
            "state": ToolCall.State.AWAITING_APPROVAL,
        },
    )
    known = row.questions.filter(kind=new_question.kind).first()
    return known or row.questions.create(
        kind=new_question.kind,
        message=new_question.message,
        schema=new_question.schema,
        arguments=new_question.arguments,
        group_id=new_question.group_id,
        expires_at=timezone.now() + timedelta(seconds=settings.QUESTION_EXPIRES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuestion:
    """A question to a person that has no row yet."""

    kind: str
    message: str = ""
    schema: Mapping[str, Any] | None = None
    arguments: Mapping[str, Any] | None = None
    group_id: int | None = None


@transaction.atomic
def ask(claim: Claim, call_id: str, new_question: NewQuestion) -> Question:
    """Store the form of a running call. Raises StaleEpoch."""
    if not _turn_query(claim).exists():
        raise StaleEpoch
    row = ToolCall.objects.get(turn_id=claim.turn_id, call_id=call_id)
    return Question.objects.create(
        tool_call=row,
        kind=new_question.kind,
        message=new_question.message,
        schema=new_question.schema,
        group_id=new_question.group_id,
        expires_at=timezone.now() + timedelta(seconds=settings.QUESTION_EXPIRES),
    )


def stop_clock(claim: Claim, seconds_left: float) -> None:
    """Stop the turn's deadline while a person is asked. Raises StaleEpoch."""
    _update(claim, {"deadline_at": None, "seconds_left": seconds_left})


def start_clock(claim: Claim, seconds_left: float) -> None:
    """Raises StaleEpoch."""
    _update(claim, {"deadline_at": Moment(seconds_left), "seconds_left": None})


def find_decided_question(question_id: str) -> Question | None:
    """The question, once it is no longer open."""
    rows = Question.objects.exclude(state=Question.State.OPEN)
    return rows.select_related("decided_by").filter(pk=question_id).first()


def requeue_to_republish(turn_id: str) -> bool:
    """Queue a turn that waits for a person, so that a run publishes its questions
    again: its events are not in memory. False if it does not wait."""
    waiting = Turn.objects.filter(pk=turn_id, status=Turn.Status.WAITING)
    return bool(waiting.update(status=Turn.Status.QUEUED))


def expire_questions() -> list[str]:
    """Expire the questions that were not answered in time. Returns the turns that
    continue without an answer."""
    turns = []
    for question in Question.objects.past_expiry().select_related("tool_call")[:100]:
        with suppress(AlreadyDecided):
            if question.expire():
                turns.append(question.tool_call.turn_id)
    return turns


def withdraw(question_id: str) -> None:
    """Close a question whose answer is not needed any more."""
    Question.objects.open().filter(pk=question_id).update(
        state=Question.State.CANCELLED, decided_at=timezone.now()
    )


@transaction.atomic
def heartbeat(beats: Mapping[Claim, Snapshot | None]) -> HeartbeatResult:
    """Renew the leases of all runs of this process and store their snapshots.

    A snapshot is None if there is nothing new since the last one.
    """
    values = [_beat(claim, snapshot) for claim, snapshot in beats.items()]
    renewed = [
        each
        for first in range(0, len(values), BEATS)
        for each in sql.renew(_lease(), values[first : first + BEATS])
    ]
    return HeartbeatResult(
        lost=[each.turn_id for each in renewed if not each.is_ours],
        stopped=[each.turn_id for each in renewed if each.is_stopped],
        skipped=[each.turn_id for each in renewed if each.is_skipped],
    )


def store_snapshot(claim: Claim, snapshot: Snapshot) -> bool:
    """Store a large snapshot in a write of its own, so that it delays no lease.

    False if it was not stored because the row is locked.
    """
    renewed = sql.renew(_lease(), [_beat(claim, snapshot)])
    return not any(each.is_skipped for each in renewed)


def _beat(claim: Claim, snapshot: Snapshot | None) -> sql.Beat:
    if snapshot is None:
        return (claim.turn_id, claim.epoch, None, None, None, None)
    items_json = sql.to_json(list(snapshot.items))
    came_further = claim.taken_up if snapshot.is_progress else None
    pending = snapshot.provider_response
    return (
        claim.turn_id,
        claim.epoch,
        items_json,
        snapshot.last_sequence,
        came_further,
        sql.to_json(pending.to_dict()) if pending else None,
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The uncommitted items of a run, and the sequence number of its last event."""

    items: Sequence[ItemPayload]
    last_sequence: int
    is_long: bool = False
    is_progress: bool = False  # more than an earlier run has stored
    provider_response: ProviderResponse | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The turns that other runs have claimed, the turns to be stopped, and those whose
    snapshot was not stored because another transaction held the row."""

    lost: Sequence[str]
    stopped: Sequence[str]
    skipped: Sequence[str]


def release(
    claim: Claim,
    partial: Sequence[ItemPayload],
    made: Sequence[FinishedModelCall],
    pending: ProviderResponse | None = None,
) -> None:
    """Let another run continue at once."""
    with _writing(partial):
        # A release during a deploy is not a crash, so it does not count as a claim.
        if _turn_query(claim).update(
            lease_until=LAPSED.expression,
            partial=list(partial) or None,
            provider_response=pending.to_dict() if pending else None,
            claims=F("claims") - 1,
        ):
            enqueue(claim.turn_id)
        _prepare_write(claim, TurnProgress(calls_made=made))()


def release_all() -> int:
    """Release all turns. Called at the start of the only process: the process that ran
    them is gone."""
    running = Turn.objects.filter(status=Turn.Status.RUNNING)
    return running.update(lease_until=LAPSED.expression)


def request_cancel(turn_id: str) -> None:
    Turn.objects.not_finished().filter(pk=turn_id).update(cancel_requested=True)


def to_sweep(limit: int) -> list[str]:
    """Claimable turns, oldest first."""
    return sql.to_sweep(limit)


def suspects(limit: int) -> list[tuple[str, bool]]:
    """Claimable turns that must run alone."""
    return sql.suspects(limit)
