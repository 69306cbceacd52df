"""The events of a finished turn, made from its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from conversations.engine.event_log import (
    Entry,
    Position,
    TurnDeleted,
    TurnLog,
    entries_after,
)
from conversations.models import Item, Turn
from llm.db.statements import CompiledRows
from llm.models import ModelCall
from llm.wire.facades.errors import restore_error
from llm.wire.response_builder import ResponseBuilder


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FinishedTurn:
    """A finished turn: all its events, in an epoch after its last."""

    entries: list[Entry]
    end: Position  # position of the terminal event of the last run

    def after(self, after: Position | None) -> list[Entry]:
        """The entries that a subscriber at `after` has not received."""
        if after and self.end <= after < self.entries[0].log_position:
            return []
        return entries_after(self.entries, after)


_STATUS = CompiledRows(
    lambda pk: Turn.objects.filter(pk=pk).values_list("status"), "a turn"
)


def replay_or_status(turn_id: str) -> FinishedTurn | str:
    """The turn if it is over, else its status, by one query. Raises TurnDeleted."""
    found = _STATUS.rows(turn_id)
    status = str(found[0][0]) if found else ""
    return status if status in Turn.UNFINISHED else replay(turn_id) or status


def replay(turn_id: str) -> FinishedTurn | None:
    """None while the turn is not over. Synchronous; three queries.

    Raises TurnDeleted.
    """
    turn = (
        Turn.objects.select_related("language_model__provider")
        .filter(pk=turn_id)
        .first()
    )
    if turn is None:
        raise TurnDeleted
    if not turn.is_finished:
        return None
    rows = list(Item.objects.filter(turn=turn, origin=Item.Origin.OUTPUT))
    builder = ResponseBuilder(
        id=turn.pk,
        model=turn.language_model.public_name if turn.language_model else "",
        created_at=int(turn.created_at.timestamp()),
    )
    events = builder.start()
    events += builder.restore([row.payload for row in rows], turn.usage)
    calls = list(ModelCall.objects.filter(turn_id=turn.pk).order_by("id"))
    if (hits := _count_cache_hits(calls)) is not None:
        builder.set_extension_field("parley:cache", {"hits": hits})
    for step, options in _find_degraded(calls):
        # A live subscriber whose log was silent may not have received it.
        events += builder.extension("parley:step.degraded", step=step, options=options)
    events += _ending(turn, builder)
    if turn.status == Turn.Status.COMPLETED and turn.finished_at:
        ended = events[-1]["response"]
        ended["completed_at"] = int(turn.finished_at.timestamp())
    log = TurnLog(turn.pk)
    end = Position(turn.epoch, turn.last_sequence or 0)
    earlier_positions = {
        n: Position(row.epoch, row.sequence) for n, row in enumerate(rows)
    }
    log.append(turn.epoch + 1, events, earlier_positions)
    return FinishedTurn(list(log.entries), end)


def _find_degraded(calls: Iterable[ModelCall]) -> Iterable[tuple[int, list[str]]]:
    """The steps whose options were changed or left out, and these options. Rows count
    steps from 0, events from 1."""
    found = {(call.step or 0) + 1: call.degraded for call in calls if call.degraded}
    return found.items()


def _count_cache_hits(calls: Iterable[ModelCall]) -> int | None:
    """The calls that stored answers replaced; None if none asked the cache. A row has a
    saved cost, perhaps 0, or is a hit if its call asked."""
    over = (ModelCall.Status.COMPLETED, ModelCall.Status.INCOMPLETE)
    asked = [
        call.is_cached
        for call in calls
        if call.purpose == ModelCall.Purpose.ANSWER
        and call.status in over
        and (call.is_cached or call.saved_cost is not None)
    ]
    return sum(asked) if asked else None


def _ending(turn: Turn, builder: ResponseBuilder) -> list[dict[str, object]]:
    match turn.status:
        case Turn.Status.FAILED:
            error = turn.error or {}
            recorded_error = restore_error(
                error.get("code") or "E_INTERNAL",
                error.get("message") or "Failed.",
                error.get("param"),
                error.get("retry_after"),
                error.get("host"),
            )
            return builder.fail(recorded_error)
        case Turn.Status.CANCELLED:
            return builder.cancel()
        case Turn.Status.INCOMPLETE:
            return builder.complete(turn.incomplete_reason or "max_output_tokens")
    return builder.complete()
