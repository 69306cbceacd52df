"""What a call costs in USD. None means unknown, which is not the same as free.

What the provider says it bills wins; then the prices the staff set for the model; then
the price list that genai-prices brings along. Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from llm.wire.deltas import UsageDelta

PRICE_NAMES = ("input", "cached_input", "cache_write", "output")
MILLION = 1_000_000  # tokens, the unit of prices

# Where the price list has another name for a provider than we.
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
    """The cost of one call. `models` are the model's names, the surest first."""
    if (billed := _amount(usage.cost)) is not None:
        return billed
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    tokens = _by_class(usage)
    if prices:
        return _by_own_prices(tokens, prices)
    for model in dict.fromkeys(filter(None, models)):
        if (listed := _by_list(tokens, kind, base_url, model)) is not None:
            return listed
    return None


def warm() -> None:
    """Load the price list, which takes half a second, before a call has to wait.

    It takes 6 MB as well, so not before there is a call.
    """
    import_module("genai_prices.data")


def problems(prices: Mapping[str, Any]) -> list[str]:
    """What is wrong with a model's own prices."""
    if not prices:
        return []
    found = [
        f"{name!r} is no price; there are {', '.join(PRICE_NAMES)}."
        for name in prices
        if name not in PRICE_NAMES
    ]
    found += [
        f"{name!r} must be USD per million tokens, 0 or more."
        for name in PRICE_NAMES
        if name in prices and _amount(prices[name]) is None
    ]
    missing = [name for name in ("input", "output") if name not in prices]
    return found + [f"{name!r} is missing." for name in missing]


def _amount(value: Any) -> Decimal | None:
    """`value` as it is written, if it is an amount of money."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def _by_class(usage: UsageDelta) -> dict[str, int]:
    """Tokens by price, each counted once; hosts do not always add up."""
    whole = max(usage.input_tokens or 0, 0)
    cached = min(max(usage.cached_tokens or 0, 0), whole)
    written = min(max(usage.cache_write_tokens or 0, 0), whole - cached)
    return {
        "input": whole - cached - written,
        "cached_input": cached,
        "cache_write": written,
        "output": max(usage.output_tokens or 0, 0),
    }


def _by_own_prices(
    tokens: Mapping[str, int], prices: Mapping[str, Any]
) -> Decimal | None:
    total = Decimal(0)
    for name, count in tokens.items():
        usual = "output" if name == "output" else "input"
        price = _amount(prices.get(name, prices.get(usual)))
        if price is None:
            return None
        total += price * count
    return total / MILLION


def _by_list(
    tokens: Mapping[str, int], kind: str, base_url: str, model: str
) -> Decimal | None:
    # Importing it takes half a second, which a start need not wait for.
    from genai_prices import Usage

    usage = Usage(
        input_tokens=tokens["input"] + tokens["cached_input"] + tokens["cache_write"],
        cache_read_tokens=tokens["cached_input"],
        cache_write_tokens=tokens["cache_write"],
        output_tokens=tokens["output"],
    )
    for where in _places(kind, base_url):
        if (entry := _entry(model, **where)) is None:
            continue  # no such host or model in the list
        provider, priced = entry
        now = datetime.now(tz=UTC)
        told = priced.calc_price(usage, provider, genai_request_timestamp=now)
        return Decimal(told.total_price)
    return None


@lru_cache(maxsize=1_000)
def _entry(model: str, **where: str) -> tuple[Any, Any] | None:
    """A host and a model of the list, which is long and matched by patterns."""
    from genai_prices.data_snapshot import get_snapshot

    place = (where.get("provider_id"), where.get("provider_api_url"))
    try:
        return get_snapshot().find_provider_model(model, None, *place)
    except LookupError:
        return None


def _places(kind: str, base_url: str) -> Iterator[dict[str, str]]:
    """Where in the list to look; by address first, as many a host is asked through
    another one's wire format."""
    yield {"provider_api_url": base_url}
    listed = _LISTED_AS.get(kind, kind)
    if listed in _listed():  # it would take "openai_compatible" for OpenAI itself
        yield {"provider_id": listed}


@cache
def _listed() -> frozenset[str]:
    from genai_prices.data import providers

    return frozenset(provider.id for provider in providers)
