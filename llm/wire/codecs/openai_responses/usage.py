"""Token counts and costs of Responses answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.wire.deltas import UsageDelta
from llm.wire.usage_numbers import amount, count, is_other_tier

_USD_PER_TICK = 1e-10  # xAI bills in ticks


#: Tools of the host that have a price for each use.
_PRICED_TOOLS = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "web_search_call",
    }
)


def usage_of(usage: dict[str, Any], response: Mapping[str, Any]) -> UsageDelta:
    """The `usage` of a complete `response` in canonical meaning."""
    read = usage.get("input_tokens_details")
    written = usage.get("output_tokens_details")
    cost = amount(usage, "cost")
    if (ticks := amount(usage, "cost_in_usd_ticks")) is not None:
        cost = ticks * _USD_PER_TICK
    prompt, output = count(usage, "input_tokens"), count(usage, "output_tokens")
    total = count(usage, "total_tokens")
    if output is not None and total is not None:  # some tokens are only in the total
        output = max(output, total - (prompt or 0))
    return UsageDelta(
        input_tokens=prompt,
        output_tokens=output,
        cached_tokens=count(read, "cached_tokens"),
        cache_write_tokens=count(read, "cache_write_tokens"),
        reasoning_tokens=count(written, "reasoning_tokens"),
        cost=cost,
        raw=usage,
        has_other_prices=_has_other_prices(response) or None,
    )


def _has_other_prices(response: Mapping[str, Any]) -> bool:
    if is_other_tier(response.get("service_tier")):
        return True
    items = [item for item in response.get("output") or () if isinstance(item, dict)]
    return any(str(item.get("type")) in _PRICED_TOOLS for item in items)
