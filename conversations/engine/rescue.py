"""What staff may do to a turn that hangs: have it begun anew, or taken from its run.

Both raise the epoch, so that a run that still holds the turn is fenced: its writes hit
nothing, and its next heartbeat ends it. Synchronous; submit the turn afterwards.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F

from conversations.engine import enqueue
from conversations.models import Turn


def retry(turn_id: str) -> bool:
    """Queue an unfinished turn again, with all its claims before it.

    What is on record of it stays: the next run goes on from there. False where the turn
    is over.
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
    """Take a turn from the run that has it, so that another takes it up at once.

    False where it is not running.
    """
    return _queue(turn_id, [Turn.Status.RUNNING])


@transaction.atomic
def _queue(turn_id: str, states: list[Turn.Status], **changed: Any) -> bool:
    turns = Turn.objects.filter(pk=turn_id, status__in=states)
    if not turns.update(
        status=Turn.Status.QUEUED,
        epoch=F("epoch") + 1,
        lease_until=None,
        last_sequence=None,
        **changed,
    ):
        return False
    enqueue(turn_id)
    return True
