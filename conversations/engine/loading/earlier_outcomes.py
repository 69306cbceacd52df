"""The outcomes of tool calls that an interrupted run of the turn has stored."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.engine.question_store import withdraw_forms_of
from conversations.models import ToolCall, Turn
from tools.execute import CallOutcome
from tools.loop.tool_calls import PLACEHOLDER
from tools.registry import RuntimeTool
from tools.runtime_tool import REPEATABLE

_OUTCOME_UNKNOWN = (
    "Error: this call was interrupted and may or may not have taken effect. It is not"
    " repeated; find out before you call it again."
)


def earlier_outcomes(
    turn: Turn, tools: Mapping[str, RuntimeTool]
) -> dict[str, CallOutcome]:
    """The outcomes by call id. Withdraws the forms of calls that were interrupted.

    A tool that was running is executed again only if it declares that it may be.
    """
    outcomes = {}
    rows = list(ToolCall.objects.filter(turn=turn))
    interrupted = [row for row in rows if row.state == ToolCall.State.EXECUTING]
    if waited := [row for row in interrupted if row.blocking]:
        withdraw_forms_of(waited, turn.epoch)
    for row in rows:
        if not row.blocking:  # a message delivers its result
            outcomes[row.call_id] = CallOutcome(
                row.call_id, "background", PLACEHOLDER, "", 0.0
            )
        elif row.output is not None:
            outcomes[row.call_id] = CallOutcome(
                row.call_id, row.state, row.output, row.error, row.seconds or 0.0
            )
        elif row.state == ToolCall.State.EXECUTING and not _may_repeat(row, tools):
            outcomes[row.call_id] = CallOutcome(
                row.call_id, "unknown", _OUTCOME_UNKNOWN, "outcome unknown", 0.0
            )
    return outcomes


def _may_repeat(row: ToolCall, tools: Mapping[str, RuntimeTool]) -> bool:
    tool = tools.get(row.name)
    return tool is not None and tool.replay in REPEATABLE
