"""Runs replays in the background: one at a time in a process, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from django.conf import settings
from django.db import transaction

from conversations.engine.metering import max_cost
from conversations.engine.process.file_threads import run_on_file_thread
from conversations.engine.process.leased_batches import BatchStore, BatchWorker
from conversations.engine.replays.changed_turn import ChangedTurn, load_changed
from conversations.engine.replays.replay_record import ReplayRecord
from conversations.models import Turn
from conversations.models.staff.replay import ERASED, Replay, ReplayedTurn
from llm.errors import LLMError
from llm.http.recording import unpack
from llm.models import ModelCall
from llm.pricing.caller import Caller
from llm.wire.facades.errors import error_to_store
from llm.wire.items import Event
from llm.wire.response_builder import ResponseBuilder
from tools.loop.loop import respond
from tools.loop.task import Task
from tools.registry import Context


class ReplayPriceUnknown(LLMError):
    """The model's price is unknown, so the replay's budget cannot be kept."""

    code, status = "E_PRICE_UNKNOWN", 409


class ReplayStore(BatchStore):
    batch_model = Replay
    rows_field, batch_field = "turns", "replay"
    related = ("language_model__provider", "tool_version__tool")
    spent = ("model_calls", "input_tokens", "output_tokens", "cost")

    @transaction.atomic
    def record(self, row: ReplayedTurn, calls: Sequence[ModelCall]) -> None:
        """Store the calls. If the conversation was corrected or the turn erased while
        it ran, the requests may repeat what is gone: the figures alone stay."""
        if _has_old_text(row):
            for call in calls:
                call.recording, call.error_detail = None, ""
        ModelCall.objects.record_all(calls)

    @transaction.atomic
    def end_row(self, row: ReplayedTurn) -> None:
        """Store how it ended, without an answer that may repeat what is gone."""
        if _has_old_text(row):
            row.items, row.error = [], ERASED
        super().end_row(row)


store = ReplayStore()


class Replays(BatchWorker):
    store = store

    async def work_on(self, row: ReplayedTurn) -> None:
        """Fills in the row. Raises LLMError."""
        changed = await self._database.read(load_changed, row.turn_id, row.replay)
        row.corrections_seen = changed.turn.conversation.corrections
        if changed.rebuilt.load_files is not None:
            await run_on_file_thread(changed.rebuilt.load_files)
        route = changed.rebuilt.route
        id = f"replay_{uuid4().hex}"
        builder = ResponseBuilder(id=id, model=route.name)
        builder.start()
        left = await self._database.read(store.budget_left, row.replay)
        caller = Caller(user_id=row.replay.created_by_id)
        record = ReplayRecord(
            id, builder, route, caller, left, "test", replayed_turn_id=row.turn_id
        )
        if left is not None and max_cost(changed.rebuilt.prepare([]), route) is None:
            raise ReplayPriceUnknown
        try:
            events: list[Event] = []
            async for batch in respond(
                _task(changed, record), builder=builder, record=record
            ):
                events = batch or events
        finally:
            _note_figures(row, changed, record)
            row.items = [*builder.output, *builder.partial()]
            await self._database.write(store.record, row, record.rows)
        row.state = ReplayedTurn.State.COMPLETED
        if error := error_to_store(events):
            row.state = ReplayedTurn.State.FAILED
            row.error = f"{error['code']}: {error['message']}"[:500]


def _has_old_text(row: ReplayedTurn) -> bool:
    """Whether the conversation was corrected, or the turn erased, after it was read.
    If not, the conversation is locked, so that neither happens before the transaction
    ends: what corrects it locks it before it looks for rows to erase."""
    if row.corrections_seen is None:  # it has failed before
        return False
    turns = Turn.objects.select_related("conversation").order_by()
    same = turns.filter(pk=row.turn_id, conversation__corrections=row.corrections_seen)
    return same.select_for_update(of=("conversation",)).first() is None


def _task(changed: ChangedTurn, record: ReplayRecord) -> Task:
    rebuilt, turn = changed.rebuilt, changed.turn
    return Task(
        prepare=rebuilt.prepare,
        stream=rebuilt.stream,
        tools=changed.tools,
        client_tools=rebuilt.client_tools,
        parallel=rebuilt.is_parallel,
        max_steps=settings.TURN_MAX_STEPS,
        max_tool_calls=turn.options.get("max_tool_calls"),
        context=Context(
            user_id=turn.actor_id,
            conversation_id=turn.conversation_id,
            # Not the turn's id: tools would get the idempotency keys of its calls.
            turn_id=record.id,
            may_read_chats=turn.may_read_chats,
            access_token_id=changed.access_token_id,
        ),
        is_cost_exhausted=record.is_cost_exhausted,
    )


def _note_figures(
    row: ReplayedTurn, changed: ChangedTurn, record: ReplayRecord
) -> None:
    """Add them to those of attempts that a drain ended."""
    record.add_cost(row)
    row.model_calls += len(record.rows)
    row.input_tokens = (row.input_tokens or 0) + record.input_tokens
    row.output_tokens = (row.output_tokens or 0) + record.output_tokens
    row.tools_run = list(changed.tools_run)
    first = record.rows[0].recording if record.rows else None
    if first is not None and changed.first_request:
        sent = unpack(first.pack())["request"]
        row.is_same_request = sent == changed.first_request
