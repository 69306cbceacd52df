"""The results of background calls that a turn can deliver to its model."""

from __future__ import annotations

from conversations.models import ToolCall, Turn
from conversations.turns import waiting_messages
from tools.execution.output import Output
from tools.loop.late_results import LateResult, result_message


def has_undelivered_results(turn: Turn) -> bool:
    """Whether calls of this turn, or of turns that it follows, have such results, or
    messages steer a turn of its conversation. Few conversations have any, as
    `loading.turn_context` finds first."""
    return waiting_messages.has_steering(turn.conversation_id) or bool(
        _undelivered(turn)
    )


def load_results(turn_id: str) -> list[tuple[int, LateResult]]:
    """Undelivered results for this turn, each with the key of its row, in the order in
    which the calls ended."""
    turn = Turn.objects.only("conversation_id").get(pk=turn_id)
    return [(row.pk, _late_result(row)) for row in _undelivered(turn)]


def _undelivered(turn: Turn) -> list[ToolCall]:
    rows = ToolCall.objects.awaiting_delivery().filter(
        turn__conversation_id=turn.conversation_id
    )
    if not (found := list(rows.order_by("ended_at", "pk"))):
        return []
    lineage = set(Turn.objects.lineage_of(turn))
    return [row for row in found if row.turn_id in lineage]


def _late_result(row: ToolCall) -> LateResult:
    output: Output = row.output if row.output is not None else ""
    return LateResult(
        item=result_message(row.call_id, row.name, output),
        call_id=row.call_id,
        name=row.name,
        state=row.state,
        error=row.error,
        seconds=row.seconds,
    )
