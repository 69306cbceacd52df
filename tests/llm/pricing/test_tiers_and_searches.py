"""Prices of service tiers, and of searches that a host makes for an answer."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage, calc_price

from llm.adaptation.adapt import add_usage
from llm.pricing import cost as pricing
from llm.pricing.cost import cost, is_guess
from llm.wire.codecs.anthropic.blocks import usage_of as usage_of_messages
from llm.wire.codecs.gemini.decoder import GeminiDecoder
from llm.wire.codecs.openai_chat.usage import usage_of as usage_of_chat
from llm.wire.codecs.openai_responses.usage import usage_of as usage_of_responses
from llm.wire.deltas import UsageDelta, is_well_formed

OPENAI = {"kind": "openai", "base_url": "https://api.openai.com/v1"}
ANTHROPIC = {"kind": "anthropic", "base_url": "https://api.anthropic.com"}
GOOGLE = {
    "kind": "gemini",
    "base_url": "https://generativelanguage.googleapis.com/v1beta",
}
LISTED = {"openai": "openai", "anthropic": "anthropic", "gemini": "google"}
OWN = {"input": 2, "output": 8}
READ, WRITTEN = 20_000, 3_000


def tiered(tier: str | None, **more: Any) -> UsageDelta:
    return UsageDelta(READ, WRITTEN, tier=tier, **more)


def price(found: UsageDelta, host: dict[str, str], model: str) -> tuple[Any, bool]:
    return (
        cost(found, **host, models=[model]),
        is_guess(found, **host, models=[model]),
    )


# The bundled list


@pytest.mark.parametrize(
    ("host", "model", "tier", "context"),
    [
        (OPENAI, "gpt-6.1-sol", "flex", {"service_tier": "flex"}),
        (OPENAI, "gpt-6.1-sol", "priority", {"service_tier": "priority"}),
        (OPENAI, "gpt-4.1", "batch", {"processing": "batch"}),
        (ANTHROPIC, "claude-fable-5-2", "fast", {"speed": "fast"}),
        (ANTHROPIC, "claude-fable-5-2", "batch", {"processing": "batch"}),
        (GOOGLE, "gemini-2.5-flash", "batch", {"processing": "batch"}),
    ],
)
def test_a_listed_tier_has_its_price_and_is_no_guess(host, model, tier, context):
    usage = Usage(input_tokens=READ, output_tokens=WRITTEN)
    listed = calc_price(
        usage, model, provider_id=LISTED[host["kind"]], price_context=context
    )
    assert price(tiered(tier), host, model) == (listed.total_price, False)
    assert cost(tiered(None), **host, models=[model]) != listed.total_price


@pytest.mark.parametrize(
    ("host", "model", "tier"),
    [
        (OPENAI, "gpt-4.1", "flex"),  # not offered
        (OPENAI, "gpt-6.1-sol", "scale"),
        (ANTHROPIC, "claude-fable-5-2", "priority"),
        (ANTHROPIC, "claude-fable-5-2", "fast-batch"),
        (GOOGLE, "gemini-2.5-flash", "provisioned_throughput"),
        # Azure has OpenAI's usual prices; its tiers have others.
        (
            {"kind": "azure_openai", "base_url": "https://x.openai.azure.com/openai"},
            "gpt-6.1-sol",
            "priority",
        ),
    ],
)
def test_an_unlisted_tier_costs_the_usual_price_and_is_a_guess(host, model, tier):
    usual = cost(tiered(None), **host, models=[model])
    assert usual is not None
    assert price(tiered(tier), host, model) == (usual, True)


def test_a_tier_counts_from_its_day(monkeypatch: pytest.MonkeyPatch):
    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2026, 10, 1, tzinfo=UTC)

    monkeypatch.setattr(pricing, "datetime", Earlier)
    usual = cost(tiered(None), **OPENAI, models=["gpt-6.1-sol"])
    assert price(tiered("flex"), OPENAI, "gpt-6.1-sol") == (usual, True)


@pytest.mark.parametrize(
    ("host", "model", "counts", "dollars"),
    [
        (OPENAI, "gpt-4.1", {"web_searches": 3}, "0.03"),
        (OPENAI, "gpt-4.1", {"file_searches": 2}, "0.005"),
        (OPENAI, "gpt-4.1", {"web_searches": 1, "file_searches": 1}, "0.0125"),
        (ANTHROPIC, "claude-fable-5-2", {"web_searches": 10}, "0.1"),
        (GOOGLE, "gemini-2.5-flash", {"web_searches": 1}, "0.035"),
    ],
)
def test_listed_searches_are_added_and_are_no_guess(host, model, counts, dollars):
    usual = cost(tiered(None), **host, models=[model])
    found = price(tiered(None, **counts), host, model)
    assert found == (usual + Decimal(dollars), False)
    # A tier changes the price of tokens only.
    without = cost(tiered("batch"), **host, models=[model])
    found = price(tiered("batch", **counts), host, model)
    assert found == (without + Decimal(dollars), False)


def test_searches_without_a_listed_price_are_a_guess():
    model = "gpt-5.3-codex"
    usual = cost(tiered(None), **OPENAI, models=[model])
    assert price(tiered(None, web_searches=1), OPENAI, model) == (usual, True)
    assert price(tiered(None, web_searches=0), OPENAI, model) == (usual, False)
    assert price(tiered("flex"), OPENAI, "unlisted") == (None, True)


def test_what_the_host_has_billed_is_no_guess():
    found = tiered("scale", web_searches=1, has_other_prices=True, cost=0.25)
    assert price(found, OPENAI, "gpt-4.1") == (Decimal("0.25"), False)


# Prices of staff


def own(found: UsageDelta, prices: dict[str, Any]) -> tuple[Any, bool]:
    given: dict[str, Any] = {**OPENAI, "models": ["gpt-4.1"], "prices": prices}
    return cost(found, **given), is_guess(found, **given)


def test_factors_of_staff_change_the_price_of_tokens():
    prices = {**OWN, "web_search": 10, "tiers": {"flex": 0.5, "priority": "2.5"}}
    usual = Decimal("0.064")
    assert own(tiered("flex"), prices) == (usual / 2, False)
    assert own(tiered("priority"), prices) == (usual * Decimal("2.5"), False)
    found = tiered("flex", web_searches=3)
    assert own(found, prices) == (usual / 2 + Decimal("0.03"), False)


def test_without_a_factor_or_price_of_staff_it_is_a_guess():
    usual = Decimal("0.064")
    assert own(tiered(None), OWN) == (usual, False)
    assert own(tiered("flex"), OWN) == (usual, True)
    assert own(tiered("batch"), {**OWN, "tiers": {"flex": 0.5}}) == (usual, True)
    assert own(tiered(None, web_searches=1), OWN) == (usual, True)
    found = tiered(None, file_searches=4)
    assert own(found, {**OWN, "web_search": 1}) == (usual, True)
    assert own(found, {**OWN, "file_search": 2.5}) == (usual + Decimal("0.01"), False)


# What is counted apart


COMPACTION = {"type": "compaction", "input_tokens": 900, "output_tokens": 80}
ADVICE = {**COMPACTION, "type": "advisor_message", "model": "claude-opus-4-6"}


def with_iterations(*iterations: Any, **more: Any) -> UsageDelta:
    counts = {"input_tokens": 100, "output_tokens": 10, **more}
    return usage_of_messages({**counts, "iterations": list(iterations)})


def test_compaction_in_a_tier_costs_that_tier_s_price():
    model = "claude-fable-5-2"
    found = with_iterations(COMPACTION, speed="fast")
    whole = cost(UsageDelta(1000, 90, tier="fast"), **ANTHROPIC, models=[model])
    assert price(found, ANTHROPIC, model) == (whole, False)
    _, guess = price(
        with_iterations(COMPACTION, service_tier="priority"), ANTHROPIC, model
    )
    assert guess


def test_advice_in_a_tier_that_its_model_does_not_have_is_a_guess():
    model = "claude-fable-5-2"
    assert not price(with_iterations(ADVICE), ANTHROPIC, model)[1]
    assert not price(with_iterations(ADVICE, service_tier="batch"), ANTHROPIC, model)[1]
    assert price(with_iterations(ADVICE, speed="fast"), ANTHROPIC, model)[1]


def test_sums_of_different_tiers_have_no_price():
    both = add_usage(tiered("flex", web_searches=1), tiered("flex", web_searches=2))
    assert (both.tier, both.web_searches, both.has_other_prices) == ("flex", 3, None)
    mixed = add_usage(tiered("flex"), tiered(None))
    assert (mixed.tier, mixed.has_other_prices) == ("flex", True)
    assert add_usage(UsageDelta(), tiered("flex")).has_other_prices is None


# What answers say


TOKENS = {"input_tokens": 1, "output_tokens": 1}
CALLS = {
    "search": {"type": "web_search_call", "status": "completed"},
    "query": {
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "queries": ["a", "b"]},
    },
    "visit": {
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "open_page", "url": "https://example.com"},
    },
    "failed": {"type": "web_search_call", "status": "failed"},
    "file": {"type": "file_search_call", "status": "completed", "queries": ["a", "b"]},
    "unfinished": {"type": "file_search_call", "status": "incomplete"},
    "code": {"type": "code_interpreter_call", "status": "completed"},
    "picture": {"type": "image_generation_call", "status": "completed"},
}


def responses(*calls: str, tier: str | None = None) -> UsageDelta:
    output = [CALLS[each] for each in calls]
    return usage_of_responses(TOKENS, {"service_tier": tier, "output": output})


def gemini(
    grounding: Any = None, usage: Any = None, model: str = "gemini-3-flash"
) -> UsageDelta:
    decoder = GeminiDecoder()
    candidate = {
        "content": {"parts": [{"text": "x"}]},
        "finishReason": "STOP",
        "groundingMetadata": grounding or {},
    }
    counts = {"promptTokenCount": 1, "candidatesTokenCount": 1, **(usage or {})}
    body = {
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": model,
    }
    deltas = [*decoder.decode_chunks(body), *decoder.close()]
    return next(d for d in reversed(deltas) if isinstance(d, UsageDelta))


def chat(usage: dict[str, Any], tier: Any = None) -> UsageDelta:
    return usage_of_chat({"prompt_tokens": 1, **usage}, tier)


def searched(*queries: str, **more: Any) -> dict[str, Any]:
    return {"webSearchQueries": list(queries), **more}


@pytest.mark.parametrize(
    ("found", "tier", "web", "files", "other"),
    [
        (responses(tier="default"), None, None, None, None),
        (responses(tier="priority"), "priority", None, None, None),
        (responses(tier="fast"), "priority", None, None, None),
        (responses(tier="ultrafast"), "ultrafast", None, None, None),
        (responses("search", "query", "visit", "failed"), None, 2, None, None),
        (responses("file", "file", "unfinished"), None, None, 2, None),
        (responses("code", "file"), None, None, 1, True),
        (responses("picture"), None, None, None, True),
        (chat({}, "default"), None, None, None, None),
        (chat({}, "on_demand"), None, None, None, None),
        (chat({}, "flex"), "flex", None, None, None),
        (chat({}, "performance"), "performance", None, None, None),
        (chat({}, "fast"), "priority", None, None, None),
        (chat({}, "no\0name"), "other", None, None, None),
        (chat({}, ["flex"]), None, None, None, None),
        (chat({"num_search_queries": 28}), None, 28, None, None),
        (chat({"num_sources_used": 4}), None, None, None, True),
        (usage_of_messages({"service_tier": "standard"}), None, None, None, None),
        (usage_of_messages({"service_tier": "batch"}), "batch", None, None, None),
        (usage_of_messages({"speed": "fast"}), "fast", None, None, None),
        (
            usage_of_messages({"speed": "fast", "service_tier": "priority"}),
            "fast-priority",
            None,
            None,
            None,
        ),
        (usage_of_messages({"inference_geo": "global"}), None, None, None, None),
        (usage_of_messages({"inference_geo": "us"}), None, None, None, True),
        (
            usage_of_messages({"server_tool_use": {"web_search_requests": 2}}),
            None,
            2,
            None,
            None,
        ),
        (gemini(usage={"serviceTier": "standard"}), None, None, None, None),
        (gemini(usage={"serviceTier": "FLEX"}), "flex", None, None, None),
        (gemini(usage={"trafficType": "ON_DEMAND"}), None, None, None, None),
        (
            gemini(usage={"trafficType": "ON_DEMAND_PRIORITY"}),
            "priority",
            None,
            None,
            None,
        ),
        (
            gemini(usage={"trafficType": "PROVISIONED_THROUGHPUT"}),
            "provisioned_throughput",
            None,
            None,
            None,
        ),
        # By query, once each, without the empty ones.
        (gemini(searched("a", "", "b", "a")), None, 2, None, None),
        # By prompt.
        (gemini(searched("a", "b"), model="gemini-2.5-pro"), None, 1, None, None),
        (
            gemini(searched("a", "b"), model="models/gemini-2.5-pro"),
            None,
            1,
            None,
            None,
        ),
        (gemini(searched("")), None, None, None, None),
        (
            gemini({"groundingChunks": [{"maps": {"uri": "x"}}]}),
            None,
            None,
            None,
            True,
        ),
    ],
)
def test_answers_say_their_tier_and_searches(
    found: UsageDelta, tier: Any, web: Any, files: Any, other: Any
):
    assert (found.tier, found.web_searches, found.file_searches) == (tier, web, files)
    assert found.has_other_prices is other
    assert is_well_formed(found)


def test_searches_that_only_tool_calls_of_gemini_report_are_counted():
    decoder = GeminiDecoder()
    call = {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["a", "b"]}, "id": "1"}
    candidate = {
        "content": {"parts": [{"toolCall": call}, {"text": "x"}]},
        "finishReason": "STOP",
    }
    body = {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1}}
    deltas = [*decoder.decode_chunks(body), *decoder.close()]
    found = [delta for delta in deltas if isinstance(delta, UsageDelta)]
    assert found[-1].web_searches == 2
