"""What an answer took: models, times, tokens and cost of its model calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings

from conversations.models import Turn
from llm.models import ModelCall

_COLUMNS = (
    "turn_id",
    "model_name",
    "ttft",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "service_tier",
    "web_searches",
    "file_searches",
    "cost",
    "is_estimated",
    "degraded",
)


@dataclass(frozen=True, slots=True)
class AnswerDetails:
    models: Sequence[str]
    calls: int
    seconds: float | None
    first_token_seconds: float | None
    input_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    service_tiers: Sequence[str]  # without the usual one
    web_searches: int | None
    file_searches: int | None
    is_estimated: bool  # tokens and cost, of one call or more
    cost: Decimal | None
    is_cost_complete: bool
    degraded: Sequence[str]  # options that were changed or left out


def details_of(turns: Sequence[Turn]) -> dict[str, AnswerDetails]:
    """The details of each turn, by its id. One query."""
    found: dict[str, list[ModelCall]] = {turn.pk: [] for turn in turns}
    calls = ModelCall.objects.filter(turn_id__in=found).order_by("id")
    for call in calls.only(*_COLUMNS):
        found[call.turn_id].append(call)
    return {turn.pk: _sum_up(turn, found[turn.pk]) for turn in turns}


def _sum_up(turn: Turn, calls: Sequence[ModelCall]) -> AnswerDetails:
    costs = [call.cost for call in calls if call.cost is not None]
    is_shown = settings.SHOW_COSTS
    return AnswerDetails(
        models=_distinct(call.model_name for call in calls if call.model_name),
        calls=len(calls),
        seconds=turn.seconds,
        first_token_seconds=next((c.ttft for c in calls if c.ttft is not None), None),
        input_tokens=_total(call.input_tokens for call in calls),
        cached_tokens=_total(call.cached_tokens for call in calls),
        cache_write_tokens=_total(call.cache_write_tokens for call in calls),
        output_tokens=_total(call.output_tokens for call in calls),
        reasoning_tokens=_total(call.reasoning_tokens for call in calls),
        service_tiers=_distinct(c.service_tier for c in calls if c.service_tier),
        web_searches=_total(call.web_searches for call in calls),
        file_searches=_total(call.file_searches for call in calls),
        is_estimated=any(call.is_estimated for call in calls),
        cost=sum(costs, Decimal(0)) if costs and is_shown else None,
        is_cost_complete=is_shown and len(costs) == len(calls),
        degraded=_distinct(option for call in calls for option in call.degraded),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    """None where no call has reported the count."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
