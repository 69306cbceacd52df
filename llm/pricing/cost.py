"""The cost of a call in USD. None means unknown, not free.

The cost billed by the provider comes first, then the prices that staff set for the
model and this time, then the bundled list (`price_list`). Nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from llm.pricing import price_list
from llm.pricing.price_list import HOUR_FACTOR, MILLION
from llm.wire.deltas import UsageDelta

PRICE_NAMES = ("input", "cached_input", "cache_write", "output")
#: Prices that staff may leave out of those of a model.
OPTIONAL_PRICE_NAMES = ("cache_write_1h",)
_ALL_PRICE_NAMES = (*PRICE_NAMES, *OPTIONAL_PRICE_NAMES)

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


def is_guess(usage: UsageDelta, *, kind: str, base_url: str) -> bool:
    """Whether `cost` may be wrong: for a service tier or searches, which have prices of
    their own, and for another model than the answering one, without a listed price."""
    if _amount(usage.cost) is not None:
        return False
    return usage.has_other_prices is True or any(
        apart.model and not listed_prices(kind, base_url, apart.model)
        for apart in usage.apart or ()
    )


def _by_tokens(
    usage: UsageDelta,
    kind: str,
    base_url: str,
    models: Iterable[str],
    prices: Mapping[str, Any] | None,
) -> Decimal | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    tokens = _by_class(usage)
    if prices:
        return _by_own_prices(tokens, prices)
    now, host = datetime.now(tz=UTC), _LISTED_AS.get(kind, kind)
    for model in dict.fromkeys(filter(None, models)):
        listed = price_list.cost(tokens, host, base_url, model, now)
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
    """What the bundled list has now, in USD per million tokens; {} for nothing."""
    now, host = datetime.now(tz=UTC), _LISTED_AS.get(kind, kind)
    return price_list.prices_of(host, base_url, model, now)


def has_conditions(kind: str, base_url: str, model: str) -> bool:
    """Whether the bundled list has more of this model than `listed_prices`: prices of
    long prompts, of requests, of times of day."""
    host = _LISTED_AS.get(kind, kind)
    tariffs = price_list.tariffs_of(host, base_url, model)
    return any(each.has_conditions for each in tariffs)


def problems(prices: Mapping[str, Any]) -> list[str]:
    """Validation errors of a model's own prices."""
    if not prices:
        return []
    found = [
        f"{name!r} is not a price; use {', '.join(_ALL_PRICE_NAMES)}."
        for name in prices
        if name not in _ALL_PRICE_NAMES
    ]
    found += [
        f"{name!r} must be USD per million tokens, 0 or more."
        for name in _ALL_PRICE_NAMES
        if name in prices and _amount(prices[name]) is None
    ]
    missing = [name for name in ("input", "output") if name not in prices]
    return found + [f"{name!r} is missing." for name in missing]


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


def _by_own_prices(
    tokens: Mapping[str, int], prices: Mapping[str, Any]
) -> Decimal | None:
    total = Decimal(0)
    for name, count in tokens.items():
        if not count:
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
    return total / MILLION
