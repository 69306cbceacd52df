"""Writes of what is new in a turn: its items, model calls and tool calls.

The rows are encoded first, and written in the transaction that changes their turn. On
PostgreSQL a few rows are written by the very statement that changes it.

Synchronous; called through `database.executor.Database`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from conversations.engine import background_store as background
from conversations.engine.claim_store import Claim, update_turn
from conversations.models import Attachment, Item, ToolCall
from conversations.models.turn import increment_rewritten
from conversations.turns import waiting_messages
from conversations.turns.attachments import discard, store_texts
from conversations.turns.file_storage import are_local
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
    calls = [call_row(claim, made) for made in progress.calls_made]
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


def call_row(claim: Claim, made: FinishedModelCall) -> ModelCall:
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
