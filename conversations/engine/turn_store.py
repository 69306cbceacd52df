"""Database writes of the turn protocol: a turn goes on, ends, or is left to another
run. Each is one transaction that requires the claim's epoch.

Synchronous; called through `database.executor.Database`. A write that finds no row of
its epoch raises `StaleEpoch`: another run has claimed the turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from conversations import turn_queue
from conversations.access.webhooks import outbox, recipients
from conversations.engine import background_store as background
from conversations.engine import message_consequences
from conversations.engine.claim_store import (
    Claim,
    find_next_turns,
    lease_end,
    turn_query,
    update_turn,
)
from conversations.engine.database.sql import LAPSED
from conversations.engine.lease_store import ProviderResponse
from conversations.engine.process import crash_points
from conversations.engine.progress_store import (
    FinishedModelCall,
    PreparedWrite,
    TurnProgress,
    call_row,
    prepare_write,
    write_transaction,
)
from conversations.models import Question, ToolCall, Turn
from llm.db.durable_commit import sync_on_commit
from llm.models import ModelCall
from llm.wire.items import Item as ItemPayload

logger = logging.getLogger(__name__)

SLOW_WRITE = 1.0  # seconds; a write that takes longer renews the lease


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
    preset_version: int | None = None


def advance(claim: Claim, progress: TurnProgress) -> None:
    """Raises StaleEpoch."""
    write = prepare_write(claim, progress)
    changed: dict[str, Any] = {
        "lease_until": lease_end(),
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
        changed["claims_until_progress"] = claim.claims
    began = time.monotonic()
    with write.transaction():
        if progress.is_durable:
            sync_on_commit()
        write.change_turn(changed)
        if time.monotonic() - began > SLOW_WRITE:  # little of the lease would be left
            update_turn(claim, {"lease_until": lease_end()})


def finish(claim: Claim, ending: Ending) -> list[str]:
    """Store the end of the turn. Returns the ids of the next turns that may run.

    Raises StaleEpoch. Raises NotEnded, which leaves the turn to be claimed again,
    rather than present half an answer as complete.
    """
    if ending.status == Turn.Status.COMPLETED and ending.progress.ended_output is None:
        raise NotEnded("its last provider call is not on record as ended")
    write = prepare_write(claim, ending.progress)
    if not _is_one_statement(ending, write):
        with write.transaction():
            _finish(claim, ending, write)
            _note_finish(claim, ending)
            return _begin_next(claim.conversation_id)
    # It needs no transaction, which would be two more round trips.
    _finish(claim, ending, write)
    crash_points.reach("turn_store.finish:inside")
    try:
        return _begin_next(claim.conversation_id)
    except Exception as exc:  # the end is committed, and is still to be published
        logger.warning(
            "what follows turn %s is left to the sweep: %s",
            claim.turn_id,
            type(exc).__name__,
        )
        return []


def _is_one_statement(ending: Ending, write: PreparedWrite) -> bool:
    """Whether the end of the turn is one statement."""
    details = ending.response["incomplete_details"] or {}
    return (
        write.is_one_statement
        and not ending.called
        and details.get("reason") != Turn.HaltedBy.MAX_COST
        and not recipients.is_any()
    )


def _finish(claim: Claim, ending: Ending, write: PreparedWrite) -> None:
    """Write the end itself."""
    response = ending.response
    details = response["incomplete_details"] or {}
    write.change_turn(
        {
            "status": ending.status,
            "usage": response["usage"],
            "error": ending.error,
            "incomplete_reason": details.get("reason", ""),
            "last_sequence": ending.last_sequence,
            "ended_output": ending.progress.ended_output,
            "preset_version": ending.preset_version,
            "partial": None,
            "provider_response": None,
            "lease_until": None,
            "finished_at": _finish_time(response.get("completed_at")),
        }
    )


def _note_finish(claim: Claim, ending: Ending) -> None:
    """Write what must be committed with the end."""
    details = ending.response["incomplete_details"] or {}
    outbox.note_end(
        claim.turn_id,
        ending.status,
        error=ending.error,
        incomplete_reason=details.get("reason", ""),
    )
    if ending.called:
        _cancel_open_calls(claim, ending.abandoned)
    if details.get("reason") == Turn.HaltedBy.MAX_COST:
        message_consequences.halt_for_cost(claim.turn_id)


def _begin_next(conversation_id: str) -> list[str]:
    """Queue what follows the turn that has just ended."""
    next_turns, has_waking_results = find_next_turns(conversation_id)
    for waiting in next_turns:
        turn_queue.enqueue(waiting)
    if not has_waking_results:
        return next_turns
    with transaction.atomic():
        # Turns of other branches may end at this moment too: none waits for another.
        opened = background.open_turn_for_results(conversation_id, is_ending=True)
    return [*next_turns, opened] if opened else next_turns


def _finish_time(completed_at: int | None) -> datetime:
    """Now, but within the second in which the response says that it was completed: read
    again, it has the time from the row."""
    now = timezone.now()
    if completed_at is None:
        return now
    end = datetime.fromtimestamp(completed_at, UTC) + timedelta(microseconds=999_999)
    return min(now, end)


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
        state__in=[ToolCall.State.EXECUTING, *ToolCall.AWAITING_PERSON],
    )
    if abandoned:
        left.filter(call_id__in=abandoned).update(
            state=ToolCall.State.ABANDONED, error=_ABANDONED, ended_at=now
        )
    left.update(state=ToolCall.State.CANCELLED, ended_at=now)
    Question.objects.open().filter(tool_call__turn_id=claim.turn_id).update(
        state=Question.State.CANCELLED, decided_at=now
    )


def record_calls(claim: Claim, made: Sequence[FinishedModelCall]) -> None:
    """Record provider calls, even if another run has claimed the turn since. A write
    whose answer was lost may have recorded them: those are left out."""
    rows = ModelCall.objects.filter(turn_id=claim.turn_id)
    with transaction.atomic():
        known = list(rows.only("step", "attempt", "latency", "started_at"))
        new = [each for each in made if not _is_known(call_row(claim, each), known)]
        progress = TurnProgress(calls_made=new)
        prepare_write(claim, progress, changes_turn=False).write()


def _is_known(row: ModelCall, known: Sequence[ModelCall]) -> bool:
    """Within a second: the start of each row is computed anew from the clocks."""
    return any(
        (row.step, row.attempt, row.latency) == (each.step, each.attempt, each.latency)
        and abs((row.began_at - each.began_at).total_seconds()) < 1
        for each in known
    )


def postpone(claim: Claim) -> None:
    """Let the sweep claim the turn again after the lease. It does not count as a claim:
    this one has called nothing."""
    turn_query(claim).update(lease_until=lease_end().expression, claims=F("claims") - 1)


def release(
    claim: Claim,
    partial: Sequence[ItemPayload],
    made: Sequence[FinishedModelCall],
    pending: ProviderResponse | None = None,
    seconds_left: float | None = None,
) -> None:
    """Let another run continue at once. `seconds_left` until the turn's deadline, which
    is paused until then, as it may take hours; None if it is not known."""
    changed: dict[str, Any] = {
        "lease_until": LAPSED.expression,
        "partial": list(partial) or None,
        "provider_response": pending.to_dict() if pending else None,
        # A release during a deploy is not a crash, so it does not count as a claim.
        "claims": F("claims") - 1,
    }
    if seconds_left is not None:
        changed |= {"deadline_at": None, "seconds_left": seconds_left}
    with write_transaction(partial):
        if turn_query(claim).update(**changed):
            turn_queue.enqueue(claim.turn_id)
        progress = TurnProgress(calls_made=made)
        prepare_write(claim, progress, changes_turn=False).write()
