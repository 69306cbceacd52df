"""Port to the queue of turns, for all code that makes a turn claimable.

In the embedded delivery the rows are the queue, so nothing else is written. The scaled
delivery fills the port (`conversations/apps.py`): there a notice, sent in the
same transaction as the turn, wakes the workers.
"""

from __future__ import annotations

from collections.abc import Callable

_enqueue: Callable[[str], None] | None = None


def fill(enqueue: Callable[[str], None] | None) -> None:
    """Let `enqueue` queue turns; None for no queue beside the rows."""
    global _enqueue
    _enqueue = enqueue


def enqueue(turn_id: str) -> None:
    """Queue a turn in the transaction that writes it.

    Call it where a turn becomes claimable, and `engine.submit` after the commit.
    """
    if _enqueue is not None:
        _enqueue(turn_id)
