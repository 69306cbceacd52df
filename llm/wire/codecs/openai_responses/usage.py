"""Token counts and costs of Responses answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.wire.deltas import UsageDelta
from llm.wire.usage_numbers import OPENAI_ALIASES, amount, count, name_tier

_USD_PER_TICK = 1e-10  # xAI bills in ticks
#: Tools of the host that have a price which depends on more than their uses.
_PRICED_TOOLS = frozenset(
    {"code_interpreter_call", "image_generation_call", "x_search_call"}
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
    used = _tools_of(response)
    return UsageDelta(
        input_tokens=prompt,
        output_tokens=output,
        cached_tokens=count(read, "cached_tokens"),
        cache_write_tokens=count(read, "cache_write_tokens"),
        reasoning_tokens=count(written, "reasoning_tokens"),
        cost=cost,
        raw=usage,
        has_other_prices=not _PRICED_TOOLS.isdisjoint(used) or None,
        tier=name_tier(response.get("service_tier"), OPENAI_ALIASES),
        web_searches=used.count("web_search_call") or None,
        file_searches=used.count("file_search_call") or None,
    )


def _tools_of(response: Mapping[str, Any]) -> list[str]:
    """Types of the items, without the tool calls that OpenAI does not bill: those that
    did not complete, and a web search's visits to a page.

    Source: https://developers.openai.com/api/docs/pricing
    """
    found = []
    for item in response.get("output") or ():
        if not isinstance(item, dict):
            continue
        action = item.get("action")
        visits = isinstance(action, dict) and action.get("type", "search") != "search"
        if not visits and item.get("status", "completed") == "completed":
            found.append(str(item.get("type")))
    return found
