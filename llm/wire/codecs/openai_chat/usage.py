"""Token counts and costs of Chat Completions answers, which hosts count differently."""

from __future__ import annotations

from typing import Any

from llm.wire.deltas import UsageDelta
from llm.wire.usage_counts import amount, count


def usage_of(usage: dict[str, Any]) -> UsageDelta:
    """A host's `usage` in canonical meaning; the original object stays in `raw`."""
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
    if read is not None and cached and cached > read:
        read += cached  # Grok on Azure counts cached tokens separately
    total = count(usage, "total_tokens")
    if written is not None and total is None and reasoned and reasoned > written:
        written += reasoned  # reasoning is counted separately, and there is no total
    elif written is not None and total is not None:
        # xAI counts reasoning separately; Gemini's copy of this API reports it only in
        # the total. Mistral counts audio input separately from the prompt; it is not
        # output.
        audio = count(into, "audio_tokens") or 0
        audio = audio if audio > (read or 0) else 0
        written += max(0, total - (read or 0) - audio - written)
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
    )


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
