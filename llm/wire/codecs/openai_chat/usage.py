"""Token counts and costs of Chat Completions answers, which hosts count differently."""

from __future__ import annotations

from typing import Any

from llm.wire.deltas import UsageDelta
from llm.wire.usage_numbers import OPENAI_ALIASES, amount, count, name_tier


def usage_of(usage: dict[str, Any], tier: Any = None) -> UsageDelta:
    """A host's `usage` in canonical meaning; the original object stays in `raw`.
    `tier`: the service tier of the answer."""
    into = usage.get("prompt_tokens_details")
    out = usage.get("completion_tokens_details")
    read, written = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    cached = _first(
        count(into, "cached_tokens"),
        count(usage, "prompt_cache_hit_tokens"),  # DeepSeek
        count(usage, "cached_tokens"),  # Together
        count(usage, "cache_read_input_tokens"),
    )
    reasoned = _first(count(out, "reasoning_tokens"), count(usage, "reasoning_tokens"))
    total = count(usage, "total_tokens")
    if read is not None:
        room = None if total is None else total - read - (written or 0)
        read += _counted_apart(into, cached or 0, read, room)
        cached = None if cached is None else min(cached, read)
    if written is not None and total is None and reasoned and reasoned > written:
        written += reasoned  # reasoning is counted separately, and there is no total
    elif written is not None and total is not None:
        # xAI counts reasoning separately; Gemini's copy of this API reports it only in
        # the total.
        written += max(0, total - (read or 0) - written)
    return UsageDelta(
        input_tokens=read,
        output_tokens=written,
        cached_tokens=cached,
        cache_write_tokens=_first(
            count(into, "cache_write_tokens"),
            count(usage, "cache_creation_input_tokens"),
        ),
        reasoning_tokens=reasoned,
        cost=_cost(usage),
        raw=usage,
        has_other_prices=_has_other_prices(usage) or None,
        tier=name_tier(tier, OPENAI_ALIASES),
        web_searches=count(usage, "num_search_queries"),  # Perplexity
    )


def _has_other_prices(usage: dict[str, Any]) -> bool:
    """Whether xAI read sources or ran tools for it, and bills them."""
    return bool(count(usage, "num_sources_used")) or bool(
        count(usage, "num_server_side_tools_used")
    )


def _counted_apart(into: Any, cached: int, read: int, room: int | None) -> int:
    """Input that `prompt_tokens` leaves out: cached tokens, or audio at Mistral.

    `room` is what the total has beyond prompt and answer; None without a total. Grok on
    Azure reports more cached tokens than its prompt has, and counts none of them in its
    total.
    """
    audio = count(into, "audio_tokens") or 0
    found = sum(each for each in (cached, audio) if each > read)
    return found if room is None or found <= room else 0


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _cost(usage: dict[str, Any]) -> float | None:
    """USD: OpenRouter's number, Perplexity's object, xAI's ticks of 1e-10."""
    reported = usage.get("cost")
    if isinstance(reported, dict):
        cost = amount(reported, "total_cost")
    else:
        cost = amount(usage, "cost")
    if cost is not None:
        return float(cost)
    ticks = amount(usage, "cost_in_usd_ticks")
    return ticks / 1e10 if ticks else None
