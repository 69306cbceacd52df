"""What is stored of a claimed turn that cannot be loaded, so that its run can end it
without losing what earlier runs have stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from conversations.engine import claim_store, question_store
from conversations.engine.claim_store import Claim
from conversations.engine.lease_store import ProviderResponse
from conversations.engine.loading.item_loader import load_items
from conversations.engine.loading.loaded_turn import Progress
from conversations.engine.loading.turn_loader import progress_of
from conversations.models import Turn
from llm import router
from llm.errors import LLMError
from llm.keys.audience import KeyAudience
from llm.models import ApiKey
from llm.provider import Route
from llm.wire.items import Item as ItemPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadedTurn:
    """The progress of earlier runs, by rows alone: no model, key or file is needed."""

    progress: Progress
    partial: Sequence[ItemPayload]
    model: str
    route: Route | None  # to the provider that continues a response, if one does
    created_at: datetime
    cancel_requested: bool
    waits: bool  # for a decision that a person can still make


def load_unloaded(claim: Claim) -> UnloadedTurn:
    turn = claim_store.read_turn(claim)
    progress = progress_of(turn, load_items(turn))
    model, pending = turn.language_model, progress["pending"]
    return UnloadedTurn(
        progress=progress,
        partial=turn.partial or (),
        model=model.public_name if model else "",
        route=_route_of(turn, pending) if pending else None,
        created_at=turn.created_at,
        cancel_requested=turn.cancel_requested,
        waits=question_store.open_decisions(turn.pk).exists(),
    )


def _route_of(turn: Turn, pending: ProviderResponse) -> Route | None:
    """The route by which the response was requested, though its model may be disabled
    now: it is only cancelled. None if its key is gone."""
    model = turn.language_model or turn.conversation.usual_model
    key_id = pending.response.issuer["route"].split(":")[1]
    if model is None or not key_id.isdecimal():
        return None
    key = ApiKey.every.filter(pk=int(key_id), provider=model.provider_id).first()
    if key is None:
        return None
    try:
        return router.route_by(
            model, key, KeyAudience(user_id=key.owner_id, group_id=key.group_id)
        )
    except LLMError:
        return None
