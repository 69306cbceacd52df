"""What few conversations have, by one query: results or messages for the model that
wait, approvals that cover further calls, and messages of other people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conversations.engine.database import sql
from conversations.engine.loading.approvals import may_have_standing_approvals
from conversations.models import Turn
from tools.registry import RuntimeTool


@dataclass(frozen=True, slots=True)
class TurnExtras:
    """Of a turn's conversation. False where its tools do not need to know."""

    has_undelivered: bool
    has_standing_approvals: bool
    has_words_of_others: bool


#: Those of a conversation that was created just now.
NO_TURN_EXTRAS = TurnExtras(
    has_undelivered=False, has_standing_approvals=False, has_words_of_others=False
)


def load_turn_extras(turn: Turn, tools: Mapping[str, RuntimeTool]) -> TurnExtras:
    """`tools`: those that the turn may run. Where others have written is looked up only
    for tools that change something."""
    chat = turn.conversation
    may_act = any(tool.asks_after_untrusted for tool in tools.values())
    is_known = turn.parent_id is None or chat.is_from_api or turn.author_id is not None
    values = [
        *(chat.pk, chat.pk),
        *(may_have_standing_approvals(tools), chat.pk),
        *(may_act and not is_known, chat.pk),
    ]
    found = sql.first(sql.TURN_EXTRAS, values)
    assert found is not None, "it selects one row"
    return TurnExtras(*map(bool, found))
