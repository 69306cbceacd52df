"""The turn protocol's writes. Each is one transaction and says `WHERE epoch = mine`.

Synchronous; called through `database.Database`. A write that finds no row raises
`Fenced`: another run has the turn.
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

from conversations.attachments import store
from conversations.engine import background_rows as background
from conversations.engine import enqueue, message_bounds, sql
from conversations.engine.durable import sync_on_commit
from conversations.engine.log import Fenced
from conversations.engine.sql import LAPSED, Moment
from conversations.models import (
    AlreadyDecided,
    Attachment,
    Item,
    Question,
    ToolCall,
    Turn,
)
from llm.client import Call
from llm.models import ModelCall
from llm.prepared import Insert
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.items import ProviderData
from llm.wire.request import BackgroundResponse
from tools.execute import Outcome

BEATS = 500  # runs in a statement
LONG = 1.0  # seconds for which few writes take
MUCH = 1_000_000  # characters, for which a transaction may stand still longer


@dataclass(frozen=True, slots=True)
class Claim:
    """The turn is ours until the lease runs out; `epoch` is what every write names."""

    turn_id: str
    conversation_id: str
    epoch: int
    claims: int = 1  # since the turn last came further, or waited for a person
    taken_up: int = 1  # how often since it last waited
    seconds_left: float | None = None  # of its time; None: all


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """What a provider continues in the background, as a turn's row has it."""

    response: BackgroundResponse
    after: int  # items on record when it was asked for: it answers these, and no others

    @classmethod
    def read(cls, told: Mapping[str, Any] | None) -> ProviderResponse | None:
        if told is None:
            return None
        return cls(BackgroundResponse(told["id"], told["issuer"]), told["after"])

    def told(self) -> dict[str, Any]:
        response = self.response
        return {"id": response.id, "issuer": response.issuer, "after": self.after}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMade:
    """A provider call that is over, for its row."""

    route: Route
    call: Call
    step: int
    cancelled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a turn has come to since its last write."""

    #: New items with their proof and the sequence number that told them done.
    items: Sequence[tuple[ItemPayload, ProviderData | None, int]] = ()
    first_position: int = 0
    last_sequence: int = 0  # number of the last event so far
    calls_made: Sequence[CallMade] = ()
    executing: Sequence[ItemPayload] = ()
    background: Collection[str] = ()  # call ids of those that run without us
    outcomes: Sequence[Outcome] = ()
    is_durable: bool = False  # marks of tools that must not run twice are among it
    #: Keys of rows whose results the model is told with these items.
    delivered: Sequence[int] = ()
    usage: Mapping[str, Any] | None = None
    ended_output: int | None = None  # as `ResponseBuilder` has it


class NotEnded(Exception):
    """A turn was to be completed whose last provider call no host has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    status: str
    response: Mapping[str, Any]
    error: Mapping[str, Any] | None  # as `errors.to_keep` has it
    last_sequence: int
    called: bool  # tools were called
    progress: Progress = field(default_factory=Progress)
    abandoned: Collection[str] = ()  # calls given up that cannot be ended


def _lease() -> Moment:
    return Moment(settings.TURN_LEASE)


def claim(turn_id: str, *, alone: bool = False) -> Claim | None:
    """None where the turn is somebody else's, is over, or must wait for another; or is
    to run alone, and does not."""
    time, now = Moment(settings.TURN_DEADLINE), Moment()
    values = [_lease(), timezone.now(), time, turn_id, now, now]
    taken = sql.first(sql.CLAIM_ALONE if alone else sql.CLAIM, values)
    if taken is None:
        return None
    conversation_id, epoch, claims, fruitless, left, *times = taken
    if left is None:
        left = _seconds(*times)
    else:  # it has waited for a person
        started = {"deadline_at": Moment(left), "seconds_left": None}
        sql.update_running(turn_id, epoch, started)
    return Claim(turn_id, conversation_id, epoch, fruitless, claims, left)


def _seconds(until: Any, now: Any) -> float:
    """Between moments as the database tells them."""
    ends, begins = (
        datetime.fromisoformat(each) if isinstance(each, str) else each
        for each in (until, now)
    )
    return float((ends - begins).total_seconds())


def _mine(claim: Claim) -> QuerySet[Turn]:
    return Turn.objects.filter(
        pk=claim.turn_id, epoch=claim.epoch, status=Turn.Status.RUNNING
    )


def _update(claim: Claim, changed: Mapping[str, Any]) -> None:
    """Raises Fenced."""
    if sql.update_running(claim.turn_id, claim.epoch, changed) is None:
        raise Fenced


@contextmanager
def _writing(written: object) -> Iterator[None]:
    """A transaction. While PostgreSQL is sent something, it counts as one that stands
    still, and is ended after a few seconds: with tens of megabytes too soon."""
    with transaction.atomic():
        if connection.vendor == "postgresql" and _length(written) > MUCH:
            sql.stand_still_longer()
        yield


def _length(value: object) -> int:
    """Of all texts in it."""
    match value:
        case str():
            return len(value)
        case Mapping():
            return sum(map(_length, value.values()))
        case Sequence():
            return sum(map(_length, value))
    return 0


def advance(claim: Claim, progress: Progress) -> None:
    """Raises Fenced."""
    write = _ready(claim, progress)
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
        if time.monotonic() - began > LONG:  # of the lease not much would be left
            _update(claim, {"lease_until": _lease()})


def finish(claim: Claim, ending: Ending) -> str | None:
    """The turn is over. The id of the turn that now may run, if one waits.

    Raises Fenced; and NotEnded, which leaves the turn to be taken up again, rather than
    have half an answer pass for a whole one.
    """
    if ending.status == Turn.Status.COMPLETED and ending.progress.ended_output is None:
        raise NotEnded("its last provider call is not on record as ended")
    write = _ready(claim, ending.progress)
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
        _leave_calls(claim, ending.abandoned)
    if details.get("reason") == Turn.HaltedBy.MAX_COST:
        message_bounds.halt_for_cost(claim.turn_id)
    if waiting := waiting_in(claim.conversation_id):
        enqueue(waiting)
        return waiting
    return background.wake(claim.conversation_id)


_ABANDONED = (
    "The call was given up, but its thread cannot be stopped: what it does may still"
    " take effect."
)


def _leave_calls(claim: Claim, abandoned: Collection[str]) -> None:
    """What still ran or waited for a person ends with the turn."""
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


def waiting_in(conversation_id: str) -> str | None:
    """The conversation's next turn to be taken up, if any."""
    found = sql.first(sql.CLAIMABLE_IN, [conversation_id, Moment()])
    return found[0] if found else None


_write_items = Insert(Item)


def _ready(claim: Claim, progress: Progress) -> Callable[[], None]:
    """Writes what is new once it is called. Before the transaction, so that it does not
    wait while a long item is encoded: it has locked the turn, and PostgreSQL ends one
    that stands still."""
    return partial(_write, claim, progress, _items(claim, progress))


def _items(claim: Claim, progress: Progress) -> Callable[[], None]:
    return _write_items.ready(
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


def _write(claim: Claim, progress: Progress, write_items: Callable[[], None]) -> None:
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


def _write_calls(claim: Claim, progress: Progress) -> None:
    now = timezone.now()
    calls = ToolCall.objects.filter(turn_id=claim.turn_id)
    for call in progress.executing:
        begun = {
            "name": call["name"],
            "state": ToolCall.State.EXECUTING,
            "blocking": call["call_id"] not in progress.background,
            "started_at": now,
        }
        # A safe tool that a crash interrupted runs again under the same call.
        ToolCall.objects.update_or_create(
            turn_id=claim.turn_id,
            call_id=call["call_id"],
            defaults={**begun, "attempts": F("attempts") + 1},
            create_defaults={**begun, "attempts": 1},
        )
    for outcome in progress.outcomes:
        mine = calls.filter(call_id=outcome.call_id)
        if outcome.state == "background":
            continue  # whoever runs it writes what becomes of it
        if outcome.accepted is not None:
            background.accept(mine, outcome.accepted)
            continue
        mine.update(
            state=outcome.state,
            output=outcome.output,
            error=outcome.error[:500],
            ended_at=now,
        )
        if outcome.whole is not None:
            keep_whole(claim.conversation_id, outcome)
    if progress.delivered:
        told = ToolCall.objects.undelivered().filter(pk__in=progress.delivered)
        told.update(delivered_in=claim.turn_id)


def keep_whole(conversation_id: str, outcome: Outcome) -> None:
    """The text of an output of which the model reads only the beginning."""
    assert outcome.whole is not None
    content = outcome.whole.encode()
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
    progress: Progress,
    asked: Sequence[tuple[ItemPayload, Asked]],
    seconds_left: float | None = None,
) -> list[Question]:
    """The turn waits for a person: its run ends, and a decision begins another, with as
    much of its time as is left now.

    The questions that are open; none where all were decided meanwhile, and then the
    turn can go on at once. Raises Fenced.
    """
    write = _ready(claim, progress)
    with _writing(progress.items):
        return _suspend(claim, progress, asked, write, seconds_left)


def _suspend(
    claim: Claim,
    progress: Progress,
    asked: Sequence[tuple[ItemPayload, Asked]],
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
    questions = [_question(claim, call, question) for call, question in asked]
    still_open = [q for q in questions if q.state == Question.State.OPEN]
    if not still_open:
        Turn.objects.filter(pk=claim.turn_id).update(status=Turn.Status.QUEUED)
    return still_open


def _question(claim: Claim, call: ItemPayload, asked: Asked) -> Question:
    row, _ = ToolCall.objects.update_or_create(
        turn_id=claim.turn_id,
        call_id=call["call_id"],
        defaults={
            "name": call["name"],
            "state": ToolCall.State.AWAITING_APPROVAL,
        },
    )
    known = row.questions.filter(kind=asked.kind).first()
    return known or row.questions.create(
        kind=asked.kind,
        message=asked.message,
        schema=asked.schema,
        arguments=asked.arguments,
        group_id=asked.group_id,
        expires_at=timezone.now() + timedelta(seconds=settings.QUESTION_EXPIRES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question to a person, before it has a row."""

    kind: str
    message: str = ""
    schema: Mapping[str, Any] | None = None
    arguments: Mapping[str, Any] | None = None
    group_id: int | None = None


@transaction.atomic
def ask(claim: Claim, call_id: str, asked: Asked) -> Question:
    """A form of a call that is running. Raises Fenced."""
    if not _mine(claim).exists():
        raise Fenced
    row = ToolCall.objects.get(turn_id=claim.turn_id, call_id=call_id)
    return Question.objects.create(
        tool_call=row,
        kind=asked.kind,
        message=asked.message,
        schema=asked.schema,
        group_id=asked.group_id,
        expires_at=timezone.now() + timedelta(seconds=settings.QUESTION_EXPIRES),
    )


def stop_clock(claim: Claim, seconds_left: float) -> None:
    """The turn's time stands still while a person is asked. Raises Fenced."""
    _update(claim, {"deadline_at": None, "seconds_left": seconds_left})


def start_clock(claim: Claim, seconds_left: float) -> None:
    """Raises Fenced."""
    _update(claim, {"deadline_at": Moment(seconds_left), "seconds_left": None})


def decided(question_id: str) -> Question | None:
    """The question, once it is no longer open."""
    rows = Question.objects.exclude(state=Question.State.OPEN)
    return rows.select_related("decided_by").filter(pk=question_id).first()


def retell(turn_id: str) -> bool:
    """A turn that waits is taken up once more, to tell what it waits for: nothing of it
    is in memory. False where it does not wait."""
    waiting = Turn.objects.filter(pk=turn_id, status=Turn.Status.WAITING)
    return bool(waiting.update(status=Turn.Status.QUEUED))


def expire_questions() -> list[str]:
    """Nobody decided in time: the turns that now go on without."""
    turns = []
    for question in Question.objects.expired().select_related("tool_call")[:100]:
        with suppress(AlreadyDecided):
            if question.expire():
                turns.append(question.tool_call.turn_id)
    return turns


def withdraw(question_id: str) -> None:
    """Nobody waits for the answer any more."""
    Question.objects.open().filter(pk=question_id).update(
        state=Question.State.CANCELLED, decided_at=timezone.now()
    )


@transaction.atomic
def heartbeat(beats: Mapping[Claim, Snapshot | None]) -> Heard:
    """Renew the leases of all runs of this process; keep what they said so far.

    A beat is None where nothing was said since the last one.
    """
    told = [_beat(mine, snapshot) for mine, snapshot in beats.items()]
    heard = [
        each
        for first in range(0, len(told), BEATS)
        for each in sql.renew(_lease(), told[first : first + BEATS])
    ]
    lost = [turn_id for turn_id, is_ours in heard if not is_ours]
    stopped = [turn_id for turn_id, is_ours in heard if is_ours]
    return Heard(lost, stopped)


def keep(mine: Claim, snapshot: Snapshot) -> None:
    """What is long is kept by itself, so that no lease waits for it."""
    sql.renew(_lease(), [_beat(mine, snapshot)])


def _beat(mine: Claim, snapshot: Snapshot | None) -> sql.Beat:
    if snapshot is None:
        return (mine.turn_id, mine.epoch, None, None, None, None)
    said = sql.written(list(snapshot.items))
    came_further = mine.taken_up if snapshot.is_progress else None
    pending = snapshot.provider_response
    return (
        mine.turn_id,
        mine.epoch,
        said,
        snapshot.last_sequence,
        came_further,
        sql.written(pending.told()) if pending else None,
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a run has said and not committed, and the number of its last event."""

    items: Sequence[ItemPayload]
    last_sequence: int
    is_long: bool = False
    is_progress: bool = False  # more than an earlier run has left
    provider_response: ProviderResponse | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What a heartbeat has learnt: turns taken over, and turns to be stopped."""

    lost: Sequence[str]
    stopped: Sequence[str]


def release(
    claim: Claim,
    partial: Sequence[ItemPayload],
    made: Sequence[CallMade],
    pending: ProviderResponse | None = None,
) -> None:
    """Let another run go on at once."""
    with _writing(partial):
        # A deploy is no crash: what is handed over in order does not count.
        if _mine(claim).update(
            lease_until=LAPSED.expression,
            partial=list(partial) or None,
            provider_response=pending.told() if pending else None,
            claims=F("claims") - 1,
        ):
            enqueue(claim.turn_id)
        _ready(claim, Progress(calls_made=made))()


def release_all() -> int:
    """At the start of the only process: whoever ran these turns is gone."""
    running = Turn.objects.filter(status=Turn.Status.RUNNING)
    return running.update(lease_until=LAPSED.expression)


def request_cancel(turn_id: str) -> None:
    Turn.objects.unfinished().filter(pk=turn_id).update(cancel_requested=True)


def to_sweep(limit: int) -> list[str]:
    """Turns that wait for somebody to take them up, oldest first."""
    return sql.to_sweep(limit)


def suspects(limit: int) -> list[tuple[str, bool]]:
    """Such turns that are to run alone."""
    return sql.suspects(limit)
