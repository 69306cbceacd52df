"""Claims of turns: taking one, finding claimable ones, ending all.

Synchronous; called through `database.executor.Database`. Every write of a claimed turn
names the claim's epoch; one that finds no row of its epoch raises `StaleEpoch`, because
another run has claimed the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from conversations.engine.database import sql
from conversations.engine.database.sql import LAPSED, Moment
from conversations.engine.event_log import StaleEpoch
from conversations.engine.process.fair_turns import ClaimableTurn
from conversations.models import AccessToken, Turn, UserSettings
from llm.db.statements import CompiledQuery, Statement
from llm.models import LanguageModel

#: What few turns have. A query for it is spared where the claim has not found it.
RARE = ("model_list", "restriction", "fallbacks", "wishes")


def _annotate(turns: QuerySet[Turn]) -> QuerySet[Turn]:
    """Whether the token has a list of models, only some groups may use the model, the
    model has fallbacks, and the user has instructions or wants no memories. And the
    time by the database's clock."""
    restrictions = LanguageModel.groups.through.objects
    fallbacks = LanguageModel.fallbacks.through.objects
    user = Coalesce(OuterRef("author_id"), OuterRef("conversation__owner_id"))
    settings_of_user = UserSettings.objects.with_wishes().filter(user_id=user)
    model = OuterRef("language_model_id")
    return turns.annotate(
        model_list=AccessToken.model_list_of("access_token_id"),
        restriction=Exists(restrictions.filter(languagemodel_id=model)),
        fallbacks=Exists(fallbacks.filter(from_languagemodel_id=model)),
        wishes=Exists(settings_of_user),
        now=Now(),
    )


#: The rows that nearly every turn needs; a preset and its model are further rows.
_CLAIMED_TURN = CompiledQuery[Turn](
    lambda pk: _annotate(Turn.objects.filter(pk=pk)),
    "a turn",
    related=(
        "conversation__owner",
        "language_model__provider",
        "access_token",
        "author",
    ),
    beside=(*RARE, "now"),
)

#: Turns that are queued when a turn ends; the sweep finds further ones.
MAX_NEXT = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """This process may run the turn until the lease expires; every write names
    `epoch`."""

    turn_id: str
    conversation_id: str
    epoch: int
    claims_without_progress: int = 1  # since it last progressed or waited
    claims: int = 1  # since the turn last waited for a person
    seconds_left: float | None = None  # until its deadline; None: the full time


def claim(turn_id: str, *, alone: bool = False) -> Claim | None:
    """Claim the turn. None if another process has claimed it, it is over or must wait
    for an earlier turn, or it is a suspect and `alone` is not set."""
    return claim_and_read(turn_id, alone=alone)[0]


def claim_and_read(
    turn_id: str, *, alone: bool = False
) -> tuple[Claim | None, Turn | None]:
    """As `claim`. On PostgreSQL the same statement also reads the turn, with what it
    refers to.

    If it waits for a change of this turn's row, what the turn refers to is read as it
    was before that.
    """
    time, now, turn = Moment(settings.TURN_DEADLINE), Moment(), None
    values = [lease_end(), timezone.now(), time, turn_id, now]
    if connection.vendor == "postgresql":
        claiming = sql.CLAIM_ALONE_AND_READ if alone else sql.CLAIM_AND_READ
        query, own_values = _CLAIMED_TURN.statement(turn_id)
        row = sql.first(f"{claiming} {query}", [*values, *own_values])
        if row is not None:
            turn = _create_turn(row)
            row = *(getattr(turn, name) for name in sql.CLAIMED_COLUMNS), row[-1]
    else:
        row = sql.first(sql.CLAIM_ALONE if alone else sql.CLAIM, [*values, now])
    if row is None:
        return None, None
    conversation_id, epoch, claims, useful, left, *times = row
    if left is None:
        left = _seconds(*times)
    else:  # the turn has waited for a person
        started = {"deadline_at": Moment(left), "seconds_left": None}
        sql.update_running(turn_id, epoch, started)
    claimed = Claim(turn_id, conversation_id, epoch, claims - useful, claims, left)
    return claimed, turn


def read_turn(claim: Claim) -> Turn:
    """The row of a claimed turn, with what it refers to."""
    row, *_ = _CLAIMED_TURN.rows(claim.turn_id)
    return _create_turn(row)


def _create_turn(row: Sequence[Any]) -> Turn:
    turn = _CLAIMED_TURN.create_instance(row)
    *found, _ = row[-1 - len(RARE) :]
    turn.lacking = {name for name, has in zip(RARE, found, strict=True) if not has}
    if turn.access_token is not None and "model_list" in turn.lacking:
        turn.access_token.model_ids = frozenset()
    return turn


def _seconds(until: Any, now: Any) -> float:
    """Seconds between two times as the database returns them."""
    ends, begins = (
        datetime.fromisoformat(each) if isinstance(each, str) else each
        for each in (until, now)
    )
    return float((ends - begins).total_seconds())


def lease_end() -> Moment:
    return Moment(settings.TURN_LEASE)


def turn_query(claim: Claim) -> QuerySet[Turn]:
    return Turn.objects.filter(
        pk=claim.turn_id, epoch=claim.epoch, status=Turn.Status.RUNNING
    )


def update_turn(
    claim: Claim, changed: Mapping[str, Any], dependent: Sequence[Statement] = ()
) -> None:
    """Change columns of the claimed turn, and then execute the `dependent` statements.
    Raises StaleEpoch."""
    found = sql.update_running(claim.turn_id, claim.epoch, changed, dependent)
    if found is None:
        raise StaleEpoch


def find_next_turns(conversation_id: str) -> tuple[list[str], bool]:
    """The conversation's claimable turns, oldest first: one for each branch. And
    whether it has results that wake the model."""
    values = [conversation_id, Moment(), conversation_id]
    found = sql.rows(sql.NEXT_IN, values)
    turns = [row for row in found if row[0] is not None]
    by_age = sorted(turns, key=lambda row: (row[1], row[0]))
    return [turn_id for turn_id, _ in by_age[:MAX_NEXT]], len(turns) < len(found)


def find_queued(turn_ids: Collection[str]) -> list[str]:
    """Those of the turns that no run has claimed yet."""
    queued = Turn.objects.filter(pk__in=turn_ids, status=Turn.Status.QUEUED)
    return list(queued.values_list("pk", flat=True))


def to_sweep(limit: int) -> list[ClaimableTurn]:
    """Claimable turns, by their place among those of their author, then by age. Turns
    that run count as their author's."""
    return sql.to_sweep(limit)


def suspects(limit: int) -> list[tuple[str, bool]]:
    """Claimable turns that must run alone."""
    return sql.suspects(limit)


def request_cancel(turn_id: str) -> None:
    Turn.objects.not_finished().filter(pk=turn_id).update(cancel_requested=True)


def requeue_to_republish(turn_id: str) -> bool:
    """Queue a turn that waits for a person, so that a run publishes its questions
    again: its events are not in memory. False if it does not wait."""
    waiting = Turn.objects.filter(pk=turn_id, status=Turn.Status.WAITING)
    return bool(waiting.update(status=Turn.Status.QUEUED))


def find_deleted(turn_ids: Collection[str]) -> set[str]:
    """Those of the turns that have no row."""
    known = Turn.objects.filter(pk__in=turn_ids).values_list("pk", flat=True)
    return set(turn_ids).difference(known)


def release_all() -> int:
    """Release all turns. Called at the start of the only process: the process that ran
    them is gone."""
    running = Turn.objects.filter(status=Turn.Status.RUNNING)
    return running.update(lease_until=LAPSED.expression)
