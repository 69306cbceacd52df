"""The events of a finished turn, made from its rows."""

from __future__ import annotations

from dataclasses import dataclass

from conversations.engine.event_log import Entry, Position, TurnLog, entries_after
from conversations.models import Item, Turn
from llm.wire.facades.errors import restore_error
from llm.wire.response import ResponseBuilder


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


def replay(turn_id: str) -> FinishedTurn | None:
    """None while the turn is not over. Synchronous; two queries."""
    turn = (
        Turn.objects.select_related("language_model__provider")
        .filter(pk=turn_id)
        .first()
    )
    if turn is None or not turn.is_finished:
        return None
    rows = list(Item.objects.filter(turn=turn, origin=Item.Origin.OUTPUT))
    builder = ResponseBuilder(
        id=turn.pk,
        model=turn.language_model.public_name if turn.language_model else "",
        created_at=int(turn.created_at.timestamp()),
    )
    events = builder.start()
    events += builder.restore([row.payload for row in rows], turn.usage)
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


def _ending(turn: Turn, builder: ResponseBuilder) -> list[dict[str, object]]:
    match turn.status:
        case Turn.Status.FAILED:
            error = turn.error or {}
            recorded_error = restore_error(
                error.get("code") or "E_INTERNAL",
                error.get("message") or "Failed.",
                error.get("param"),
                error.get("retry_after"),
            )
            return builder.fail(recorded_error)
        case Turn.Status.CANCELLED:
            return builder.cancel()
        case Turn.Status.INCOMPLETE:
            return builder.complete(turn.incomplete_reason or "max_output_tokens")
    return builder.complete()
