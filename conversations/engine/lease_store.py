"""Database writes of the heartbeat: leases are renewed, snapshots stored.

Synchronous; called through `database.executor.Database`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from conversations.engine.claim_store import Claim, lease_end
from conversations.engine.database import sql
from llm.wire.items import Item as ItemPayload
from llm.wire.request import BackgroundResponse

BEATS = 500  # runs in a statement


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """A response that a provider continues in the background, as a turn's row stores
    it."""

    response: BackgroundResponse
    after: int  # items stored when it was requested; it answers exactly these
    entry: str = ""  # id of the ledger entry that reserved its cost, if one did

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProviderResponse:
        response = BackgroundResponse(data["id"], data["issuer"])
        return cls(response, data["after"], data.get("entry", ""))

    def to_dict(self) -> dict[str, Any]:
        response = self.response
        data = {"id": response.id, "issuer": response.issuer, "after": self.after}
        return {**data, "entry": self.entry} if self.entry else data


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The uncommitted items of a run, and the sequence number of the last event that
    changed items: subscribers that read it still need the extensions that follow."""

    items: Sequence[ItemPayload]
    last_sequence: int
    length: int = 0  # characters
    is_long: bool = False
    is_progress: bool = False  # more than an earlier run has stored
    provider_response: ProviderResponse | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The claims that other runs have replaced, the turns to be stopped, and those
    whose snapshot was not stored because another transaction had locked the row."""

    lost: Sequence[Claim]
    stopped: Sequence[str]
    skipped: Sequence[str]


@transaction.atomic
def heartbeat(beats: Mapping[Claim, Snapshot | None]) -> HeartbeatResult:
    """Renew the leases of all runs of this process and store their snapshots.

    A snapshot is None if there is nothing new since the last one.
    """
    values = [_beat(claim, snapshot) for claim, snapshot in beats.items()]
    renewed = [
        each
        for first in range(0, len(values), BEATS)
        for each in sql.renew(lease_end(), values[first : first + BEATS])
    ]
    lost = {each.turn_id for each in renewed if not each.is_ours}
    return HeartbeatResult(
        lost=[claim for claim in beats if claim.turn_id in lost],
        stopped=[each.turn_id for each in renewed if each.is_stopped],
        skipped=[each.turn_id for each in renewed if each.is_skipped],
    )


def store_snapshot(claim: Claim, snapshot: Snapshot) -> bool:
    """Store a large snapshot in a write of its own, so that it delays no lease.

    False if it was not stored because the row is locked.
    """
    renewed = sql.renew(lease_end(), [_beat(claim, snapshot)])
    return not any(each.is_skipped for each in renewed)


def _beat(claim: Claim, snapshot: Snapshot | None) -> sql.Beat:
    if snapshot is None:
        return (claim.turn_id, claim.epoch, None, None, None, None)
    items_json = sql.to_json(list(snapshot.items))
    claims_until_progress = claim.claims if snapshot.is_progress else None
    pending = snapshot.provider_response
    return (
        claim.turn_id,
        claim.epoch,
        items_json,
        snapshot.last_sequence,
        claims_until_progress,
        sql.to_json(pending.to_dict()) if pending else None,
    )
