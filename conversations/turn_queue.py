"""Port to the queue of turns, for all code that makes a turn claimable.

In the embedded delivery the rows are the queue, so nothing else is written. The scaled
delivery fills the port (`conversations/apps.py`): there a notice, sent in the
same transaction as the turn, wakes the workers.
"""

from __future__ import annotations

from collections.abc import Callable

from llm.db.statements import Statement

#: Makes the expression whose evaluation queues a turn that is inserted: takes the ids
#: of the turn and its conversation, and whether it is the first.
CallOf = Callable[[str, str, bool], Statement]

_enqueue: Callable[[str], None] | None = None
_call_of: CallOf | None = None


def fill(enqueue: Callable[[str], None] | None, call_of: CallOf | None = None) -> None:
    """Let these queue turns; None for no queue beside the rows."""
    global _enqueue, _call_of
    _enqueue, _call_of = enqueue, call_of


def find_call(
    turn_id: str, conversation_id: str, *, is_first: bool
) -> Statement | None:
    """An SQL expression that queues the turn as `enqueue` does, for the statement that
    inserts it; None for no queue beside the rows."""
    if _call_of is None:
        return None
    return _call_of(turn_id, conversation_id, is_first)


def enqueue(turn_id: str) -> None:
    """Queue a turn in the transaction that writes it.

    Call it where a turn becomes claimable, and `engine.submit` after the commit.
    """
    if _enqueue is not None:
        _enqueue(turn_id)
