"""Staff actions for a turn that hangs: restart it, or take it from its run.

Both increment the epoch, which fences a run that still has the turn: its writes change
nothing, and its next heartbeat ends it. A message that no run has taken keeps its epoch
0, by which its sender may change it. Synchronous; submit the turn afterwards.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Case, F, Value, When

from conversations import turn_queue
from conversations.models import Turn

_NEXT_EPOCH = Case(
    When(status=Turn.Status.QUEUED, epoch=0, then=Value(0)), default=F("epoch") + 1
)


def retry(turn_id: str) -> bool:
    """Queue an unfinished turn again, with its number of claims reset.

    What is stored of it stays: the next run continues from there. False if the turn is
    over.
    """
    return _queue(
        turn_id,
        Turn.UNFINISHED,
        claims=0,
        claims_until_progress=0,
        deadline_at=None,
        seconds_left=None,
    )


def release(turn_id: str) -> bool:
    """Take a turn from its run, so that another run claims it at once.

    False if it is not running.
    """
    return _queue(turn_id, [Turn.Status.RUNNING])


@transaction.atomic
def _queue(turn_id: str, states: list[Turn.Status], **changed: Any) -> bool:
    turns = Turn.objects.filter(pk=turn_id, status__in=states)
    if not turns.update(
        status=Turn.Status.QUEUED,
        epoch=_NEXT_EPOCH,
        lease_until=None,
        last_sequence=None,
        **changed,
    ):
        return False
    turn_queue.enqueue(turn_id)
    return True
