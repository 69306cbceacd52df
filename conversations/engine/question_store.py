"""Database writes of questions to people: suspending a turn, forms, deadlines.

Synchronous; called through `database.executor.Database`. Writes of a claimed turn raise
`StaleEpoch` if another run has claimed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet, prefetch_related_objects
from django.utils import timezone

from conversations.access.webhooks import outbox
from conversations.engine.claim_store import Claim, turn_query, update_turn
from conversations.engine.database.sql import Moment
from conversations.engine.event_log import StaleEpoch
from conversations.engine.progress_store import (
    PreparedWrite,
    TurnProgress,
    prepare_write,
)
from conversations.models import AlreadyDecided, Question, ToolCall, Turn
from llm.wire.items import Item as ItemPayload

#: What a call of a suspended turn waits for, by the kind of its question.
_WAITING_STATES = {
    Question.Kind.APPROVAL: ToolCall.State.AWAITING_APPROVAL,
    Question.Kind.SIGN_IN: ToolCall.State.AWAITING_SIGN_IN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuestion:
    """A question to a person that has no row yet."""

    kind: Question.Kind
    message: str = ""
    schema: Mapping[str, Any] | None = None
    arguments: Mapping[str, Any] | None = None
    group_id: int | None = None
    server_id: int | None = None


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
    write = prepare_write(claim, progress)
    with write.transaction():
        return _suspend(claim, progress, new_questions, write, seconds_left)


def _suspend(
    claim: Claim,
    progress: TurnProgress,
    new_questions: Sequence[tuple[ItemPayload, NewQuestion]],
    write: PreparedWrite,
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
    write.change_turn(changed)
    questions = [_question(claim, call, question) for call, question in new_questions]
    still_open = [q for q in questions if q.state == Question.State.OPEN]
    prefetch_related_objects(still_open, "server")  # the run may not query for it
    if not still_open:
        Turn.objects.filter(pk=claim.turn_id).update(status=Turn.Status.QUEUED)
    return still_open


@transaction.atomic
def wait_again(claim: Claim, sequence: int, seconds_left: float) -> list[Question]:
    """Let the turn wait for the decisions for which it waited before this claim.
    `sequence`: of the last event so far.

    Returns the open questions; none if all were decided meanwhile, and then the turn
    can continue at once. Raises StaleEpoch.
    """
    update_turn(
        claim,
        {
            "status": Turn.Status.WAITING,
            "lease_until": None,
            "deadline_at": None,
            "seconds_left": seconds_left,
            "claims": 0,
            "claims_until_progress": 0,
            "last_sequence": sequence,
        },
    )
    found = open_decisions(claim.turn_id).select_related("tool_call", "server")
    if questions := list(found):
        return questions
    Turn.objects.filter(pk=claim.turn_id).update(status=Turn.Status.QUEUED)
    return []


def open_decisions(turn_id: str) -> QuerySet[Question]:
    """The open questions for which the turn itself waits."""
    found = Question.objects.open().filter(tool_call__turn_id=turn_id)
    return found.exclude(kind=Question.Kind.FORM)


def _question(claim: Claim, call: ItemPayload, new_question: NewQuestion) -> Question:
    row, _ = ToolCall.objects.update_or_create(
        turn_id=claim.turn_id,
        call_id=call["call_id"],
        defaults={
            "name": call["name"],
            "state": _WAITING_STATES[new_question.kind],
        },
    )
    known = row.questions.filter(kind=new_question.kind)
    if new_question.kind == Question.Kind.SIGN_IN:
        known = known.open()  # a sign-in that was given may have ended since
    if found := known.first():
        return found
    question = row.questions.create(
        kind=new_question.kind,
        message=new_question.message,
        schema=new_question.schema,
        arguments=new_question.arguments,
        group_id=new_question.group_id,
        server_id=new_question.server_id,
        expires_at=timezone.now() + timedelta(seconds=settings.QUESTION_EXPIRES),
    )
    outbox.note_question(question, claim.turn_id)
    return question


@transaction.atomic
def ask(claim: Claim, call_id: str, new_question: NewQuestion) -> Question:
    """Store the form of a running call. Raises StaleEpoch."""
    if not turn_query(claim).exists():
        raise StaleEpoch
    row = ToolCall.objects.get(turn_id=claim.turn_id, call_id=call_id)
    question = Question.objects.create(
        tool_call=row,
        kind=new_question.kind,
        message=new_question.message,
        schema=new_question.schema,
        group_id=new_question.group_id,
        expires_at=timezone.now() + timedelta(seconds=settings.QUESTION_EXPIRES),
    )
    outbox.note_question(question, claim.turn_id)
    return question


def stop_clock(claim: Claim, seconds_left: float) -> None:
    """Stop the turn's deadline while a person is asked. Raises StaleEpoch."""
    update_turn(claim, {"deadline_at": None, "seconds_left": seconds_left})


def start_clock(claim: Claim, seconds_left: float) -> None:
    """Raises StaleEpoch."""
    update_turn(claim, {"deadline_at": Moment(seconds_left), "seconds_left": None})


def find_decided_question(question_id: str) -> Question | None:
    """The question, once it is no longer open; as cancelled if its row was deleted,
    because nobody can answer it any more."""
    rows = Question.objects.select_related("decided_by")
    found = rows.filter(pk=question_id).first()
    if found is None:
        return Question(pk=question_id, state=Question.State.CANCELLED)
    return None if found.state == Question.State.OPEN else found


def expire_questions() -> list[str]:
    """Expire the questions that were not answered in time. Returns the turns that
    continue without an answer."""
    turns = []
    for question in Question.objects.past_expiry().select_related("tool_call")[:100]:
        with suppress(AlreadyDecided):
            if question.expire():
                turns.append(question.tool_call.turn_id)
    return turns


def withdraw_forms_of(calls: Sequence[ToolCall], epoch: int) -> None:
    """Close the forms of calls that an earlier run of their turn has left: nobody waits
    for the answer. `epoch`: of the run that takes the turn over."""
    forms = Question.objects.open().filter(kind=Question.Kind.FORM)
    forms.filter(tool_call__in=calls, tool_call__turn__epoch=epoch).update(
        state=Question.State.CANCELLED, decided_at=timezone.now()
    )


def withdraw(question_id: str) -> None:
    """Close a question whose answer is not needed any more."""
    Question.objects.open().filter(pk=question_id).update(
        state=Question.State.CANCELLED, decided_at=timezone.now()
    )
