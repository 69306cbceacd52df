"""Reads and writes the context that a turn's model gets beside its conversation.

The context is read once, before the first model call, and stored: a run that resumes
the turn after a crash or a decision gives the model the same. Synchronous; called
through `database.Database`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from conversations.context import Reader, Rendering, Source
from conversations.engine.log import Fenced
from conversations.engine.rows import Claim
from conversations.history import ContextBlock
from conversations.models import Turn
from conversations.presets import FAILED, GATHERED, GatheredContext, Preset


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """The stored context, and the sources that are still to be read."""

    reader: Reader
    sources: Sequence[Source] = ()
    on_demand: Sequence[Source] = ()
    blocks: Sequence[ContextBlock] = ()


def gathering(turn: Turn, preset: Preset | None, *, again: bool) -> Gathering:
    """One query if there is a preset, one more for a turn that is resumed (`again`)."""
    owner = turn.conversation.owner
    reader = Reader(
        user_id=owner.pk,
        username=owner.get_username(),
        conversation_id=turn.conversation_id,
    )
    sources = preset.context_sources() if preset else []
    on_demand = [source for source in sources if source.on_demand]
    if again and (kept := GatheredContext.objects.filter(turn=turn).first()):
        blocks = [ContextBlock(b["title"], b["text"]) for b in kept.blocks]
        return Gathering(reader=reader, on_demand=on_demand, blocks=blocks)
    return Gathering(
        reader=reader,
        sources=[source for source in sources if not source.on_demand],
        on_demand=on_demand,
    )


@transaction.atomic
def keep(claim: Claim, renderings: Sequence[Rendering]) -> None:
    """Store the context before the model is called. Raises StaleEpoch."""
    mine = Turn.objects.filter(
        pk=claim.turn_id, epoch=claim.epoch, status=Turn.Status.RUNNING
    )
    if not mine.update(notes=_notes(renderings)):
        raise Fenced
    told = [each for each in renderings if not each.reason]
    GatheredContext.objects.update_or_create(
        turn_id=claim.turn_id,
        defaults={
            "blocks": [
                {"source": e.source.name, "title": e.source.title, "text": e.text}
                for e in told
            ]
        },
    )


def _notes(renderings: Sequence[Rendering]) -> list[dict[str, str]]:
    at = timezone.now().isoformat()
    notes = [
        {"kind": FAILED, "source": e.source.name, "text": e.reason, "at": at}
        for e in renderings
        if e.reason
    ]
    titles = [e.source.title for e in renderings if not e.reason]
    if titles:
        notes.append({"kind": GATHERED, "text": ", ".join(titles), "at": at})
    return notes
