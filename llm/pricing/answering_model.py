"""What a call cost by the prices of the model that answered.

A host may answer with another model than the one that was requested, where the client
lets it choose (`models` of OpenRouter). The answer names the model, often with the date
of its version or another suffix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from llm.pricing.cost import cost, is_guess, prices_at
from llm.provider import Route
from llm.wire.deltas import StartDelta, UsageDelta

MAX_COST = Decimal(1_000_000)  # USD, of one call
_STAGE = "latest|preview|exp|beta"
#: "-2025-08-07", "-20250929", "-0613", "-001", "-preview-05-20", "-20241022-v2" and
#: "-v3-0324". No size ("-70"), and no generation ("-v3").
_VERSION = re.compile(
    rf"(?:-v\d+)?-(?:{_STAGE}|0\d\d|\d{{4}}|\d{{6}}|\d{{8}})"
    rf"(?:-(?:{_STAGE}|v\d+|\d{{2,8}})){{0,5}}"
)


def find_model(name: str, routes: Sequence[Route]) -> Route | None:
    """The model that a host calls `name`: maybe with or without a suffix as in ":free",
    or with the date of its version. None if that is none of the `routes`: "gpt-5-pro"
    is no version of "gpt-5", and has a price of its own."""
    for route in sorted(routes, key=lambda each: len(each.model), reverse=True):
        known = route.model
        if name == known or name.startswith((f"{known}:", f"{known}@")):
            return route
        if name.startswith(known) and _VERSION.fullmatch(name, len(known)):
            return route
    bare = (each for each in routes if each.model.partition(":")[0] == name)
    return next(bare, None)


def choices_of(route: Route, alternatives: Sequence[Route]) -> Sequence[Route]:
    """`route`, and those of the alternatives that its provider may choose instead."""
    others = (o for o in alternatives if o.provider_id == route.provider_id)
    return route, *others


def cost_at(route: Route, start: StartDelta, usage: UsageDelta) -> Decimal | None:
    """The cost by the prices of the model of `route`."""
    prices = prices_at(route.prices, route.price_schedule)
    return _cost(route, (start.model, route.model), usage, prices)


def cost_of_answer(
    usage: UsageDelta, start: StartDelta, route: Route, choices: Sequence[Route]
) -> tuple[Decimal | None, bool]:
    """The cost of a call, and whether it is a guess. `choices` as of `cost_of_choice`,
    if there are any."""
    if choices:
        return cost_of_choice(usage, start, choices)
    # Usual calls have nothing to look up.
    may_guess = usage.apart or usage.has_other_prices or usage.tier
    if may_guess or usage.web_searches or usage.file_searches:
        return cost_at(route, start, usage), is_guess_at(route, start, usage)
    return cost_at(route, start, usage), False


def is_guess_at(route: Route, start: StartDelta, usage: UsageDelta) -> bool:
    """Whether `cost_at` lacks a price."""
    prices = prices_at(route.prices, route.price_schedule)
    return _is_guess(route, (start.model, route.model), usage, prices)


def cost_of_choice(
    usage: UsageDelta, start: StartDelta, choices: Sequence[Route]
) -> tuple[Decimal | None, bool]:
    """The cost of a call whose host chose one of `choices` or a model without a row,
    and whether it is a guess. If the price of the model is unknown, the guess is the
    price of the dearest choice."""
    if answered := find_model(start.model, choices):
        return cost_at(answered, start, usage), is_guess_at(answered, start, usage)
    if start.model or usage.cost is not None:
        listed = _cost(choices[0], (start.model,), usage, None)
        if listed is not None:
            return listed, _is_guess(choices[0], (start.model,), usage, None)
    costs = [cost_at(each, start, usage) for each in choices]
    known = [each for each in costs if each is not None]
    return (max(known) if len(known) == len(costs) else None), True


def _is_guess(
    route: Route,
    models: Sequence[str],
    usage: UsageDelta,
    prices: Mapping[str, Any] | None,
) -> bool:
    host = route.endpoint.provider
    return is_guess(
        usage,
        kind=host.name,
        base_url=route.endpoint.base_url or host.base_url,
        models=models,
        prices=prices,
    )


def _cost(
    route: Route,
    models: Sequence[str],
    usage: UsageDelta,
    prices: Mapping[str, Any] | None,
) -> Decimal | None:
    host = route.endpoint.provider
    found = cost(
        usage,
        kind=host.name,
        base_url=route.endpoint.base_url or host.base_url,
        models=models,
        prices=prices,
    )
    # A cost of a million is an error of the provider, and too large for the column.
    return found if found is not None and found < MAX_COST else None
