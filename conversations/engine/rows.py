"""The turn protocol's writes. Each is one transaction and says `WHERE epoch = mine`.

Synchronous; called through `database.Database`. A write that finds no row raises
`Fenced`: another run has the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from conversations.engine.log import Fenced
from conversations.models import Item, ToolCall, Turn
from llm.client import Call
from llm.models import ModelCall
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.items import ProviderData
from tools.execute import Outcome


@dataclass(frozen=True, slots=True)
class Claim:
    """The turn is ours until the lease runs out; `epoch` is what every write names."""

    turn_id: str
    conversation_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMade:
    """A provider call that is over, for its row."""

    route: Route
    call: Call
    step: int
    cancelled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a turn has come to since its last write."""

    #: New items with their proof and the sequence number that told them done.
    items: Sequence[tuple[ItemPayload, ProviderData | None, int]] = ()
    first_position: int = 0
    calls_made: Sequence[CallMade] = ()
    executing: Sequence[ItemPayload] = ()
    outcomes: Sequence[Outcome] = ()
    usage: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    status: str
    response: Mapping[str, Any]
    last_sequence: int
    progress: Progress = field(default_factory=Progress)


def _lease() -> Any:
    return timezone.now() + timedelta(seconds=settings.TURN_LEASE)


def claimable() -> QuerySet[Turn]:
    """Turns that somebody should take up: queued ones whose predecessors are done, and
    running ones whose run has not been heard of for a lease."""
    earlier = Turn.objects.unfinished().filter(
        conversation_id=OuterRef("conversation_id"),
    )
    earlier = earlier.filter(
        Q(created_at__lt=OuterRef("created_at"))
        | Q(created_at=OuterRef("created_at"), pk__lt=OuterRef("pk"))
    )
    free = Q(status=Turn.Status.QUEUED) | Q(
        status=Turn.Status.RUNNING, lease_until__lt=timezone.now()
    )
    # A turn that is to be stopped waits for nobody.
    return Turn.objects.filter(free).filter(Q(cancel_requested=True) | ~Exists(earlier))


@transaction.atomic
def claim(turn_id: str) -> Claim | None:
    """None where the turn is somebody else's, is over, or must wait for another."""
    taken = (
        claimable()
        .filter(pk=turn_id)
        .update(
            epoch=F("epoch") + 1,
            status=Turn.Status.RUNNING,
            lease_until=_lease(),
        )
    )
    if not taken:
        return None
    turn = Turn.objects.only("epoch", "conversation_id", "started_at").get(pk=turn_id)
    if turn.started_at is None:
        Turn.objects.filter(pk=turn_id).update(started_at=timezone.now())
    return Claim(turn_id, turn.conversation_id, turn.epoch)


def _mine(claim: Claim) -> QuerySet[Turn]:
    return Turn.objects.filter(
        pk=claim.turn_id, epoch=claim.epoch, status=Turn.Status.RUNNING
    )


@transaction.atomic
def advance(claim: Claim, progress: Progress) -> None:
    """Raises Fenced."""
    changed: dict[str, Any] = {"lease_until": _lease()}
    if progress.items:
        changed |= {"partial": None, "usage": progress.usage}
    if not _mine(claim).update(**changed):
        raise Fenced
    _write(claim, progress)


@transaction.atomic
def finish(claim: Claim, ending: Ending) -> str | None:
    """The turn is over. The id of the turn that now may run, if one waits.

    Raises Fenced.
    """
    response = ending.response
    changed = _mine(claim).update(
        status=ending.status,
        usage=response["usage"],
        error=response["error"],
        incomplete_reason=(response["incomplete_details"] or {}).get("reason", ""),
        last_sequence=ending.last_sequence,
        partial=None,
        lease_until=None,
        finished_at=timezone.now(),
    )
    if not changed:
        raise Fenced
    _write(claim, ending.progress)
    ToolCall.objects.filter(
        turn_id=claim.turn_id, state=ToolCall.State.EXECUTING
    ).update(state=ToolCall.State.CANCELLED, ended_at=timezone.now())
    return waiting_in(claim.conversation_id)


def waiting_in(conversation_id: str) -> str | None:
    """The conversation's next turn to be taken up, if any."""
    waiting = claimable().filter(conversation_id=conversation_id)
    return waiting.order_by("created_at", "pk").values_list("pk", flat=True).first()


def _write(claim: Claim, progress: Progress) -> None:
    Item.objects.bulk_create(
        Item(
            turn_id=claim.turn_id,
            position=progress.first_position + number,
            origin=Item.Origin.OUTPUT,
            type=payload["type"],
            payload=payload,
            provider_data=proof,
            epoch=claim.epoch,
            sequence=sequence,
        )
        for number, (payload, proof, sequence) in enumerate(progress.items)
    )
    for made in progress.calls_made:
        ModelCall.objects.record(
            made.call,
            made.route,
            turn_id=claim.turn_id,
            step=made.step,
            attempt=made.call.attempt,
            start=made.call.start,
            usage=made.call.usage,
            finish=made.call.finish,
            cancelled=made.cancelled,
        )
    now = timezone.now()
    for call in progress.executing:
        # A safe tool that a crash interrupted runs again under the same call.
        ToolCall.objects.update_or_create(
            turn_id=claim.turn_id,
            call_id=call["call_id"],
            defaults={
                "name": call["name"],
                "state": ToolCall.State.EXECUTING,
                "started_at": now,
                "attempts": F("attempts") + 1,
            },
            create_defaults={
                "name": call["name"],
                "state": ToolCall.State.EXECUTING,
                "started_at": now,
                "attempts": 1,
            },
        )
    for outcome in progress.outcomes:
        ToolCall.objects.filter(turn_id=claim.turn_id, call_id=outcome.call_id).update(
            state=outcome.state,
            output=outcome.output,
            error=outcome.error[:500],
            ended_at=now,
        )


@transaction.atomic
def heartbeat(beats: Mapping[Claim, Sequence[ItemPayload] | None]) -> Heard:
    """Renew the leases of all runs of this process; keep what they said so far.

    A beat's items are None where nothing was said since the last one.
    """
    lost = []
    for mine, partial in beats.items():
        changed: dict[str, Any] = {"lease_until": _lease()}
        if partial is not None:
            changed["partial"] = list(partial)
        if not _mine(mine).update(**changed):
            lost.append(mine.turn_id)
    stopped = Turn.objects.filter(
        pk__in=[mine.turn_id for mine in beats], cancel_requested=True
    )
    return Heard(lost, list(stopped.values_list("pk", flat=True)))


@dataclass(frozen=True, slots=True)
class Heard:
    """What a heartbeat has learnt: turns taken over, and turns to be stopped."""

    lost: Sequence[str]
    stopped: Sequence[str]


@transaction.atomic
def release(
    claim: Claim, partial: Sequence[ItemPayload], made: Sequence[CallMade]
) -> None:
    """Let another run go on at once."""
    past = timezone.now() - timedelta(seconds=1)
    _mine(claim).update(lease_until=past, partial=list(partial) or None)
    _write(claim, Progress(calls_made=made))


def release_all() -> int:
    """At the start of the only process: whoever ran these turns is gone."""
    running = Turn.objects.filter(status=Turn.Status.RUNNING)
    return running.update(lease_until=timezone.now() - timedelta(seconds=1))


def request_cancel(turn_id: str) -> None:
    Turn.objects.unfinished().filter(pk=turn_id).update(cancel_requested=True)


def to_sweep(limit: int) -> list[str]:
    """Turns that wait for somebody to take them up, oldest first."""
    turns = claimable().order_by("created_at", "pk")
    return list(turns.values_list("pk", flat=True)[:limit])
