"""How much of a model's context window a conversation uses, and its log.

A provider's own count of the last call is better than our estimate, so it is used as
long as the context is still the one that was counted. Synchronous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from conversations.engine.claim_store import Claim
from conversations.engine.loading.item_loader import load_last_items, load_log
from conversations.models import Conversation, Item, Turn
from conversations.turns.compaction import (
    CHANGED_AT,
    Log,
    LogEntry,
    apply_compaction,
    find_active,
)
from conversations.turns.history import estimate_tokens, room_for_prompt
from llm import router
from llm.errors import LLMError
from llm.models import LanguageModel, ModelCall
from llm.wire.items import Item as ItemPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUse:
    """What the next request of a conversation fills of its model's context window."""

    tokens: int
    is_measured: bool  # counted by the provider, apart from new items
    context_window: int | None  # None if unknown
    compacts_above: int | None  # tokens; None: never, or only when a model refuses
    compaction: ItemPayload | None  # the active one

    @property
    def percent(self) -> int | None:
        window = self.context_window
        return min(100, round(100 * self.tokens / window)) if window else None

    @property
    def label(self) -> str:
        """For example "34 % of 128k"; without a known window "about 4.2k tokens"."""
        if self.context_window is None:
            return _("about %(tokens)s tokens") % {"tokens": _short(self.tokens)}
        return _("%(percent)s %% of %(window)s") % {
            "percent": self.percent,
            "window": _short(self.context_window),
        }

    @property
    def explained(self) -> str:
        """Sentences for the gauge's tooltip and for screen readers."""
        if self.is_measured:
            counted = f"{self.tokens:,}"
        else:
            counted = _("about %(tokens)s") % {"tokens": f"{self.tokens:,}"}
        if self.context_window is None:
            return _(
                "The conversation takes up %(tokens)s tokens. The size of the model's"
                " context window is unknown."
            ) % {"tokens": counted}
        text = _(
            "The conversation takes up %(tokens)s tokens of the model's %(window)s."
        ) % {"tokens": counted, "window": f"{self.context_window:,}"}
        if not self.compacts_above:
            return text
        above = _("Above %(tokens)s, earlier messages are summarised.")
        return f"{text} " + above % {"tokens": f"{self.compacts_above:,}"}


def _short(tokens: int) -> str:
    if tokens < 1000:
        return str(tokens)
    if tokens < 999_500:
        return f"{tokens / 1000:.3g}k"
    return f"{tokens / 1_000_000:.3g}M"


def measure_prompt(claim: Claim, model_id: int | None) -> int | None:
    """The tokens of a claimed turn's next prompt by this model's provider."""
    turn = Turn.objects.get(pk=claim.turn_id)
    return _measure(turn, load_last_items(turn), model_id)


def load_claimed_log(claim: Claim) -> Log:
    return load_log(Turn.objects.get(pk=claim.turn_id))


def find_room(conversation: Conversation) -> int | None:
    """The tokens that a prompt may have with the conversation's model; None if
    unknown."""
    last = conversation.last_turn_for(conversation.owner_id)
    return _room_of(_model_of(conversation, last))[1]


def context_use(conversation: Conversation) -> ContextUse:
    """Of the last turn of the branch that the owner looks at, and what precedes it."""
    last = conversation.last_turn_for(conversation.owner_id)
    model = _model_of(conversation, last)
    window, room = _room_of(model)
    share = settings.COMPACTION_THRESHOLD / 100
    limits: dict[str, int | None] = {
        "context_window": window,
        "compacts_above": int(room * share) if room and share else None,
    }
    if last is None:
        return ContextUse(tokens=0, is_measured=False, compaction=None, **limits)
    log = load_last_items(last)
    measured = _measure(last, log, model.pk if model else None)
    tokens = measured if measured is not None else _estimate(last, log.order)
    return ContextUse(
        tokens=tokens,
        is_measured=measured is not None,
        compaction=find_active(log.compactions, log.order),
        **limits,
    )


def _room_of(model: LanguageModel | None) -> tuple[int | None, int | None]:
    """The model's context window, and its room for prompts."""
    if model is None:
        return None, None
    window = router.capabilities(model).context_window
    return window, room_for_prompt(window, model.max_output_tokens)


def _estimate(turn: Turn, order: Mapping[str, int]) -> int:
    log = load_log(turn, order)
    active = find_active(log.compactions, log.order)
    return estimate_tokens("", apply_compaction(log.entries, active, log.order))


def _model_of(conversation: Conversation, last: Turn | None) -> LanguageModel | None:
    """The model of the last turn, else the one that the next turn gets."""
    model = last.language_model if last else None
    model = model or conversation.usual_model
    if model is not None:
        return model
    try:
        return router.find_model(None, user=conversation.owner)
    except LLMError:
        return None  # there is no model yet


def _measure(turn: Turn, log: Log, model_id: int | None) -> int | None:
    """The tokens that the provider counted in the last call and its answer, and our
    estimate of the items since; None if the context has changed since that call."""
    turn_ids = [pk for pk in (turn.pk, turn.parent_id) if pk]
    calls = ModelCall.objects.filter(
        turn_id__in=turn_ids,
        model_id=model_id,
        input_tokens__gt=0,
        status__in=[ModelCall.Status.COMPLETED, ModelCall.Status.INCOMPLETE],
    ).exclude(purpose__in=[ModelCall.Purpose.SUMMARY, ModelCall.Purpose.TITLE])
    call = calls.order_by("-id").first()
    if call is None or _has_changed(log, turn.conversation_id, call.created_at):
        return None
    answered = (call.output_tokens or 0) - (call.reasoning_tokens or 0)
    new = _items_since(turn, log.entries, call.turn_id == turn.pk)
    return (call.input_tokens or 0) + max(0, answered) + estimate_tokens("", new)


def _items_since(
    turn: Turn, entries: Sequence[LogEntry], is_own_call: bool
) -> list[ItemPayload]:
    """The items that the call has neither read nor written."""
    own = [entry for entry in entries if entry.turn_id == turn.pk]
    if is_own_call:
        written = (n for n, e in enumerate(own) if not _is_added(e))
        own = own[max(written, default=-1) + 1 :]
    return [entry.item for entry in own]


def _is_added(entry: LogEntry) -> bool:
    """Whether the server added it behind a model's answer."""
    return not entry.is_input and entry.item["type"] == "function_call_output"


def _has_changed(log: Log, conversation_id: str, since: datetime) -> bool:
    """Whether a compaction was made, edited or taken back after `since`."""
    if not log.compactions:
        return False
    rows = Item.objects.filter(
        turn__conversation=conversation_id, type="compaction", origin="output"
    )
    return any(
        made > since or (_time(payload) or since) > since
        for made, payload in rows.values_list("created_at", "payload")
    )


def _time(payload: dict[str, Any]) -> datetime | None:
    text = payload.get(CHANGED_AT)
    return parse_datetime(text) if isinstance(text, str) else None
