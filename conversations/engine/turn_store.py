"""Database writes of the turn protocol. Each is one transaction that requires the
claim's epoch.

Synchronous; called through `database.executor.Database`. A write that finds no row of
its epoch raises `StaleEpoch`: another run has claimed the turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from django.db import connection, transaction
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
from conversations.models import (
    Attachment,
    Item,
    Question,
    ToolCall,
    Turn,
)
from conversations.models.turn import increment_rewritten
from conversations.turns import waiting_messages
from conversations.turns.attachments import discard, store_texts
from conversations.turns.file_storage import are_local
from llm.db.durable_commit import sync_on_commit
from llm.db.statements import CompiledInsert, Statement, allow_long_idle
from llm.http.client import ProviderCall
from llm.models import ModelCall
from llm.models.model_call_statements import model_call_statements
from llm.pricing.caller import Caller
from llm.provider import Route
from llm.telemetry.call_metrics import count_call
from llm.wire.items import Item as ItemPayload
from llm.wire.items import ProviderData, is_compaction
from tools.execute import CallOutcome

logger = logging.getLogger(__name__)

SLOW_WRITE = 1.0  # seconds; a write that takes longer renews the lease
#: Items that are written by the statement that changes their turn. More would make
#: statements of many lengths, of each of which PostgreSQL stores a plan.
MAX_DEPENDENT = 4
LARGE_WRITE = 1_000_000  # characters; a larger write may idle longer in its transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedModelCall:
    """A finished provider call, for its row."""

    route: Route
    call: ProviderCall
    caller: Caller
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
    #: Queued turns whose messages these items are.
    absorbed: Sequence[str] = ()
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
    preset_version: int | None = None


@contextmanager
def write_transaction(written: object) -> Iterator[None]:
    """A transaction. PostgreSQL counts a transaction as idle while it receives data,
    and ends it after a few seconds: too early for tens of megabytes."""
    with transaction.atomic():
        if connection.vendor == "postgresql" and _length(written) > LARGE_WRITE:
            allow_long_idle()
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


_write_items = CompiledInsert(Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedWrite:
    """The rows of what is new, encoded."""

    claim: Claim
    progress: TurnProgress
    calls: Sequence[ModelCall]
    #: Full outputs of calls, whose files are stored; those of a bucket come later.
    texts: Sequence[Attachment] = ()
    dependent: Sequence[Statement] = ()  # the statements of items and calls, if few
    write_items: Callable[[], None] | None = None  # if many

    @property
    def is_one_statement(self) -> bool:
        """Whether `change_turn` executes one statement."""
        new = self.progress
        more = (new.absorbed, new.executing, new.outcomes, new.delivered, self.texts)
        is_compacted = any(is_compaction(payload) for payload, _, _ in new.items)
        return bool(self.dependent) and not (any(more) or is_compacted)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """The transaction of the write. If it fails, the files of texts are deleted."""
        with ExitStack() as rollback:
            rollback.callback(discard, self.texts)
            with write_transaction(self.progress.items):
                yield
            rollback.pop_all()

    def change_turn(self, changed: Mapping[str, Any]) -> None:
        """Change columns of the claimed turn, and write what is new. Raises
        StaleEpoch."""
        if self.progress.absorbed:  # before this turn is locked, as all lock the line
            waiting_messages.lock(self.claim.conversation_id)
        update_turn(self.claim, changed, self.dependent)
        self.write()

    def write(self) -> None:
        """Write what no dependent statement has written."""
        if self.write_items is not None:
            self.write_items()
            for call in self.calls:
                ModelCall.objects.record_row(call)
        else:
            for call in self.calls:
                count_call(call)
        _write(self.claim, self.progress)
        for text in self.texts:
            text.save(force_insert=True)


def prepare_write(
    claim: Claim, progress: TurnProgress, *, changes_turn: bool = True
) -> PreparedWrite:
    """Encode what is new, for `change_turn`, or for `write` without `changes_turn`.
    Done before the transaction, which locks the turn and which PostgreSQL ends when it
    is idle, so that it does not wait while a long item is encoded.

    Where it can, PostgreSQL writes a few rows in the statement that changes the turn.
    """
    calls = [_call_row(claim, made) for made in progress.calls_made]
    items = _item_rows(claim, progress)
    dependent: list[Statement] = []
    if (
        changes_turn
        and connection.vendor == "postgresql"
        and len(items) <= MAX_DEPENDENT
        and len(calls) < 2  # their ids would come in any order
        and all(call.recording is None for call in calls)
    ):
        dependent = [_write_items.dependent_statement(item) for item in items]
        dependent += chain.from_iterable(map(model_call_statements, calls))
    for call in calls:
        if call.recording is not None:
            call.recording.pack()
    write_items = None if dependent else _write_items.prepare(*items)
    texts: Sequence[Attachment] = ()
    if progress.outcomes and are_local():
        texts = store_texts(claim.conversation_id, progress.outcomes)
    return PreparedWrite(
        claim=claim,
        progress=progress,
        calls=calls,
        texts=texts,
        dependent=dependent,
        write_items=write_items,
    )


def _item_rows(claim: Claim, progress: TurnProgress) -> list[Item]:
    return [
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
    ]


def _call_row(claim: Claim, made: FinishedModelCall) -> ModelCall:
    row = ModelCall.of(
        made.call,
        made.route,
        attempt=made.call.attempt,
        start=made.call.start,
        usage=made.call.usage,
        finish=made.call.finish,
        cancelled=made.cancelled,
        caller=made.caller,
    )
    row.turn_id, row.step = claim.turn_id, made.step
    return row


def _write(claim: Claim, progress: TurnProgress) -> None:
    if any(is_compaction(payload) for payload, _, _ in progress.items):
        increment_rewritten(claim.conversation_id)  # other processes cache the history
    if progress.absorbed:
        waiting_messages.absorb(progress.absorbed, claim.turn_id)
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
    if progress.delivered:
        delivered = ToolCall.objects.awaiting_delivery().filter(
            pk__in=progress.delivered
        )
        delivered.update(delivered_in=claim.turn_id)


def record_calls(claim: Claim, made: Sequence[FinishedModelCall]) -> None:
    """Record provider calls, even if another run has claimed the turn since. A write
    whose answer was lost may have recorded them: those are left out."""
    rows = ModelCall.objects.filter(turn_id=claim.turn_id)
    with transaction.atomic():
        known = list(rows.only("step", "attempt", "latency", "started_at"))
        new = [each for each in made if not _is_known(_call_row(claim, each), known)]
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
