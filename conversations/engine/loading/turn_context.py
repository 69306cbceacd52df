"""Reads and writes the context that a turn's model gets beside its conversation, and
reads whether results, approvals or messages of other people wait for the turn.

The context is read once, before the first model call, and stored: a run that resumes
the turn after a crash or a decision gives the model the same. Synchronous; called
through `database.executor.Database`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from conversations.context import LoadedSource, Reader, Rendering
from conversations.engine.claim_store import Claim
from conversations.engine.database import sql
from conversations.engine.event_log import StaleEpoch
from conversations.models import Turn
from conversations.models.preset import (
    NOTE_CONTEXT,
    NOTE_CONTEXT_FAILED,
    GatheredContext,
    Preset,
)
from conversations.turns.history import ContextBlock
from tools.registry import RuntimeTool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """The stored context, and the sources that are still to be read."""

    reader: Reader
    sources: Sequence[LoadedSource] = ()
    on_demand: Sequence[LoadedSource] = ()
    blocks: Sequence[ContextBlock] = ()


def load_turn_context(turn: Turn, preset: Preset | None, *, again: bool) -> TurnContext:
    """One query if there is a preset, one more for a turn that is resumed (`again`)."""
    user = turn.actor
    reader = Reader(
        user_id=user.pk,
        username=user.get_username(),
        conversation_id=turn.conversation_id,
    )
    sources = preset.context_sources(user) if preset else []
    on_demand = [source for source in sources if source.on_demand]
    if again and (stored := GatheredContext.objects.filter(turn=turn).first()):
        blocks = [ContextBlock(b["title"], b["text"]) for b in stored.blocks]
        return TurnContext(reader=reader, on_demand=on_demand, blocks=blocks)
    return TurnContext(
        reader=reader,
        sources=[source for source in sources if not source.on_demand],
        on_demand=on_demand,
    )


@transaction.atomic
def save_context(claim: Claim, renderings: Sequence[Rendering]) -> None:
    """Store the context before the model is called. Raises StaleEpoch."""
    running = Turn.objects.filter(
        pk=claim.turn_id, epoch=claim.epoch, status=Turn.Status.RUNNING
    )
    if not running.update(notes=_notes(renderings)):
        raise StaleEpoch
    rendered = [each for each in renderings if not each.reason]
    GatheredContext.objects.update_or_create(
        turn_id=claim.turn_id,
        defaults={
            "blocks": [
                {"source": e.source.name, "title": e.source.title, "text": e.text}
                for e in rendered
            ]
        },
    )


def _notes(renderings: Sequence[Rendering]) -> list[dict[str, str]]:
    at = timezone.now().isoformat()
    notes = [
        {
            "kind": NOTE_CONTEXT_FAILED,
            "source": e.source.name,
            "text": e.reason,
            "at": at,
        }
        for e in renderings
        if e.reason
    ]
    titles = [e.source.title for e in renderings if not e.reason]
    if titles:
        notes.append({"kind": NOTE_CONTEXT, "text": ", ".join(titles), "at": at})
    return notes


@dataclass(frozen=True, slots=True)
class TurnExtras:
    """What few conversations have: results or messages for the model that wait,
    approvals that cover further calls, and messages of other people. False where the
    turn's tools do not need to know."""

    has_undelivered: bool
    has_standing_approvals: bool
    has_words_of_others: bool


#: Those of a conversation that was created just now.
NO_TURN_EXTRAS = TurnExtras(
    has_undelivered=False, has_standing_approvals=False, has_words_of_others=False
)


def load_turn_extras(turn: Turn, tools: Mapping[str, RuntimeTool]) -> TurnExtras:
    """One query. `tools`: those that the turn may run. Where others have written is
    looked up only for tools that change something."""
    chat = turn.conversation
    may_act = any(tool.asks_after_untrusted for tool in tools.values())
    is_known = turn.parent_id is None or chat.is_from_api or turn.author_id is not None
    asking = [tool for tool in tools.values() if tool.approval]
    may_stand = any(tool.asks_once or tool.may_run_always for tool in asking)
    values = [
        *(chat.pk, chat.pk),
        *(may_stand, chat.pk),
        *(may_act and not is_known, chat.pk),
    ]
    found = sql.first(sql.TURN_EXTRAS, values)
    assert found is not None, "it selects one row"
    return TurnExtras(*map(bool, found))
