"""The cost of a call in USD. None means unknown, not free.

The cost billed by the provider comes first, then the prices that staff set for the
model and this time, then the bundled list (`price_list`). Nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from llm.pricing import price_list
from llm.pricing.price_list import HOUR_FACTOR, MILLION, THOUSAND
from llm.wire.deltas import ApartUsage, UsageDelta
from llm.wire.usage_numbers import name_tier

PRICE_NAMES = ("input", "cached_input", "cache_write", "output")
#: Prices of a thousand searches that the host makes for an answer.
SEARCH_PRICE_NAMES = ("web_search", "file_search")
#: What staff may leave out of the prices of a model.
OPTIONAL_PRICE_NAMES = ("cache_write_1h", *SEARCH_PRICE_NAMES)
_ALL_PRICE_NAMES = (*PRICE_NAMES, *OPTIONAL_PRICE_NAMES)
#: Among prices of staff: what the tokens of a service tier cost, of the usual prices.
TIERS = "tiers"
_TIER_NAME = re.compile(r"[a-z0-9_.-]{1,40}")
_MAX_FACTOR = 100

# Providers that have another name in the price list.
_LISTED_AS = {
    "azure_openai": "azure",
    "bedrock": "aws",
    "gemini": "google",
    "vertex": "google",
    "xai": "x-ai",
}


def cost(
    usage: UsageDelta,
    *,
    kind: str,
    base_url: str,
    models: Iterable[str],
    prices: Mapping[str, Any] | None = None,
) -> Decimal | None:
    """The cost of one call, with what the host counts apart. `models`: names of the
    model, the most reliable first."""
    if (billed := _amount(usage.cost)) is not None:
        return billed
    models = tuple(models)
    total = _by_tokens(usage, kind, base_url, models, prices)
    for apart in usage.apart or ():
        cost = None
        if apart.model and apart.model not in models:
            cost = _by_tokens(apart.usage, kind, base_url, (apart.model,), None)
        if cost is None:
            cost = _by_tokens(apart.usage, kind, base_url, models, prices)
        total = None if total is None or cost is None else total + cost
    return total


def is_guess(
    usage: UsageDelta,
    *,
    kind: str,
    base_url: str,
    models: Iterable[str],
    prices: Mapping[str, Any] | None = None,
) -> bool:
    """Whether `cost` lacks a price: of what the host bills besides, of a service tier,
    of searches, and of another model than the answering one."""
    if _amount(usage.cost) is not None:
        return False
    models = tuple(models)
    if usage.has_other_prices or _lacks_price(usage, kind, base_url, models, prices):
        return True
    return any(
        _is_guess_apart(apart, kind, base_url, models, prices)
        for apart in usage.apart or ()
    )


def _is_guess_apart(
    apart: ApartUsage,
    kind: str,
    base_url: str,
    models: Sequence[str],
    prices: Mapping[str, Any] | None,
) -> bool:
    if not apart.model or apart.model in models:
        return _lacks_price(apart.usage, kind, base_url, models, prices)
    if not listed_prices(kind, base_url, apart.model):
        return True
    return _lacks_price(apart.usage, kind, base_url, (apart.model,), None)


def _lacks_price(
    usage: UsageDelta,
    kind: str,
    base_url: str,
    models: Sequence[str],
    prices: Mapping[str, Any] | None,
) -> bool:
    """Whether the usage has a tier or searches for which no price is known."""
    searches = [name for name, count in _searches(usage).items() if count]
    if not (usage.tier or searches):
        return False
    if prices:
        has_tier, known = usage.tier in prices.get(TIERS, {}), prices
    else:
        listing = _find_listing(kind, base_url, models)
        if listing is None:
            return True
        now = datetime.now(tz=UTC)
        request = _request_of(usage)
        has_tier = bool(listing.variants_for(request, now))
        known = listing.at(now, request).prices
    return (usage.tier is not None and not has_tier) or not known.keys() >= set(
        searches
    )


def _find_listing(
    kind: str, base_url: str, models: Iterable[str]
) -> price_list.Listing | None:
    """The prices of the first of these models that the bundled list has."""
    host = _LISTED_AS.get(kind, kind)
    found = (price_list.find_listing(host, base_url, each) for each in models if each)
    return next(filter(None, found), None)


def _request_of(usage: UsageDelta) -> dict[str, str]:
    """The request as the list's conditions describe it: the tier under each of its
    names."""
    tier = usage.tier
    names = ("service_tier", "speed", "processing")
    return dict.fromkeys(names, tier) if tier else {}


def _by_tokens(
    usage: UsageDelta,
    kind: str,
    base_url: str,
    models: Iterable[str],
    prices: Mapping[str, Any] | None,
) -> Decimal | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    used = _by_class(usage)
    if usage.web_searches or usage.file_searches:
        used |= _searches(usage)
    if prices:
        return _by_own_prices(used, prices, usage.tier)
    now, host = datetime.now(tz=UTC), _LISTED_AS.get(kind, kind)
    request = _request_of(usage) if usage.tier else None
    for model in dict.fromkeys(filter(None, models)):
        listed = price_list.cost(used, host, base_url, model, now, request)
        if listed is not None:
            return listed
    return None


def prices_at(
    undated: Mapping[str, Any],
    schedule: Sequence[Mapping[str, Any]],
    now: datetime | None = None,
) -> Mapping[str, Any]:
    """The staff's prices that count at `now`; {} for the bundled list. `schedule` is
    sorted by time; `undated` counts before its first entry."""
    if not schedule:  # nearly all models
        return undated
    now, found = now or datetime.now(tz=UTC), undated
    for entry in schedule:
        if datetime.fromisoformat(entry["from"]) > now:
            break
        found = entry["prices"]
    return found


def listed_prices(kind: str, base_url: str, model: str) -> Mapping[str, Decimal]:
    """What the bundled list has now, in USD per million tokens and per thousand
    searches; {} for nothing."""
    now, host = datetime.now(tz=UTC), _LISTED_AS.get(kind, kind)
    return price_list.prices_of(host, base_url, model, now)


def has_conditions(kind: str, base_url: str, model: str) -> bool:
    """Whether the bundled list has more of this model than `listed_prices`: prices of
    long prompts, of requests, of times of day, of service tiers."""
    listing = _find_listing(kind, base_url, (model,))
    return listing is not None and listing.has_conditions


def problems(prices: Mapping[str, Any]) -> list[str]:
    """Validation errors of a model's own prices."""
    if not prices:
        return []
    known = (*_ALL_PRICE_NAMES, TIERS)
    found = [
        f"{name!r} is not a price; use {', '.join(known)}."
        for name in prices
        if name not in known
    ]
    for name in _ALL_PRICE_NAMES:
        if name in prices and _amount(prices[name]) is None:
            unit = "1,000 searches" if name in SEARCH_PRICE_NAMES else "million tokens"
            found.append(f"{name!r} must be USD per {unit}, 0 or more.")
    if TIERS in prices:
        found += tier_problems(prices[TIERS])
    missing = [name for name in ("input", "output") if name not in prices]
    return found + [f"{name!r} is missing." for name in missing]


def tier_problems(tiers: Any) -> list[str]:
    """Validation errors of the factors of service tiers."""
    if not isinstance(tiers, dict):
        return ["'tiers' must be factors by tier, as in {\"flex\": 0.5}."]
    found = []
    for name, factor in tiers.items():
        if not _TIER_NAME.fullmatch(name) or name_tier(name) != name:
            found.append(
                f"'tiers': {name!r} is not a tier with prices of its own; use the"
                " host's name in small letters, as flex, priority, batch, fast."
            )
        amount = _amount(factor)
        if amount is None or amount > _MAX_FACTOR:
            found.append(
                f"'tiers': {name!r} must be a factor of the prices of tokens, from 0 to"
                f" {_MAX_FACTOR}."
            )
    return found


def _amount(value: Any) -> Decimal | None:
    """`value` as an exact number, if it is an amount of money."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def _by_class(usage: UsageDelta) -> dict[str, int]:
    """Tokens by price, each counted once; the counts of some hosts are inconsistent."""
    whole = max(usage.input_tokens or 0, 0)
    cached = min(max(usage.cached_tokens or 0, 0), whole)
    written = min(max(usage.cache_write_tokens or 0, 0), whole - cached)
    for_an_hour = min(max(usage.cache_write_1h_tokens or 0, 0), written)
    return {
        "input": whole - cached - written,
        "cached_input": cached,
        "cache_write": written - for_an_hour,
        "cache_write_1h": for_an_hour,
        "output": max(usage.output_tokens or 0, 0),
    }


def _searches(usage: UsageDelta) -> dict[str, int]:
    return {
        "web_search": max(usage.web_searches or 0, 0),
        "file_search": max(usage.file_searches or 0, 0),
    }


def _by_own_prices(
    used: Mapping[str, int], prices: Mapping[str, Any], tier: str | None
) -> Decimal | None:
    total = searched = Decimal(0)
    for name, count in used.items():
        if not count:
            continue
        if name in SEARCH_PRICE_NAMES:
            searched += (_amount(prices.get(name)) or 0) * count
            continue
        if name == "cache_write_1h" and name not in prices:
            price = _amount(prices.get("input"))
            factor = HOUR_FACTOR
        else:
            usual = "output" if name == "output" else "input"
            price, factor = _amount(prices.get(name, prices.get(usual))), 1
        if price is None:
            return None
        total += price * count * factor
    if tier:
        total *= _amount(prices.get(TIERS, {}).get(tier, 1)) or 0
    return total / MILLION + searched / THOUSAND
