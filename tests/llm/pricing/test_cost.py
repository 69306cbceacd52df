from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.adaptation.adapt import add_usage
from llm.pricing.cost import cost, is_guess, problems
from llm.pricing.usage_estimate import billed_tokens, include_apart
from llm.wire.codecs.anthropic.blocks import usage_of
from llm.wire.deltas import UsageDelta, is_well_formed

OPENAI = {"kind": "openai", "base_url": "https://api.openai.com/v1"}
OWN = {"input": 2, "cached_input": 0.5, "cache_write": 2.5, "output": 8}
counts = st.integers(0, 10**9)


def usage(**counts: object) -> UsageDelta:
    return UsageDelta(**{"input_tokens": 1000, "output_tokens": 100} | counts)


# Precedence of prices


def test_the_billed_cost_takes_precedence():
    billed = usage(cost=0.00123)
    assert cost(billed, **OPENAI, models=["gpt-4.1-mini"], prices=OWN) == Decimal(
        "0.00123"
    )


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), -1.0])
def test_a_bill_that_is_no_amount_is_passed_over(nonsense: float):
    priced = cost(usage(cost=nonsense), **OPENAI, models=["x"], prices=OWN)
    assert priced == Decimal("0.0028")


def test_prices_of_the_staff_win_over_the_list():
    priced = cost(
        usage(cached_tokens=400, cache_write_tokens=100),
        **OPENAI,
        models=["gpt-4.1-mini"],
        prices=OWN,
    )
    assert priced == Decimal("0.00225")  # (500*2 + 400*0.5 + 100*2.5 + 100*8) / 10^6


def test_cached_tokens_cost_as_much_as_input_without_a_price_of_their_own():
    plain = {"input": 2, "output": 8}
    priced = cost(
        usage(cached_tokens=400, cache_write_tokens=100),
        **OPENAI,
        models=[],
        prices=plain,
    )
    assert priced == Decimal("0.0028")


def test_free_is_a_price():
    free = {"input": 0, "output": 0}
    assert cost(usage(), **OPENAI, models=["x"], prices=free) == 0


def test_the_list_knows_the_cached_price():
    priced = cost(usage(cached_tokens=500), **OPENAI, models=["gpt-4.1-mini"])
    assert priced == Decimal("0.00041")  # 500*0.4 + 500*0.1 + 100*1.6


# What is looked up


def test_the_answered_model_name_is_priced_before_the_requested_one():
    first = cost(usage(), **OPENAI, models=["gpt-4.1-mini", "gpt-4.1"])
    second = cost(usage(), **OPENAI, models=["", "my-deployment", "gpt-4.1-mini"])
    assert first == second == Decimal("0.00056")


@pytest.mark.parametrize(
    ("kind", "base_url", "model"),
    [
        ("xai", "https://api.x.ai/v1", "grok-4.3"),
        ("xai", "https://proxy.example.com/v1", "grok-4.3"),
        ("azure_openai", "https://name.openai.azure.com/openai/v1", "gpt-4.1-mini"),
        ("openai_compatible", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b"),
        ("openai", "https://proxy.example.com/v1", "gpt-4.1-mini-2025-04-14"),
    ],
)
def test_hosts_are_found_by_address_and_else_by_kind(kind, base_url, model):
    assert cost(usage(), kind=kind, base_url=base_url, models=[model])


@pytest.mark.parametrize(
    ("kind", "base_url", "model"),
    [
        ("openai", "https://api.openai.com/v1", "no-such-model"),
        ("demo", "http://127.0.0.1:8000/demo/v1", "demo"),
        ("ollama", "http://localhost:11434/v1", "gpt-4.1-mini"),
        ("openai_compatible", "https://my.host/v1", "gpt-4.1-mini"),
        ("", "", ""),
    ],
)
def test_an_unlisted_model_has_no_price(kind, base_url, model):
    assert cost(usage(), kind=kind, base_url=base_url, models=[model]) is None


@pytest.mark.parametrize("missing", ["input_tokens", "output_tokens"])
def test_half_a_usage_has_no_price(missing: str):
    unknown = usage(**{missing: None})
    assert cost(unknown, **OPENAI, models=["gpt-4.1-mini"], prices=OWN) is None


# Arithmetic


@given(counts, counts, counts, counts)
def test_own_prices_are_exact_whatever_the_counts(whole, cached, written, output):
    usage = UsageDelta(whole, output, cached, written)
    flat = {"input": 0.1, "cached_input": 0.1, "cache_write": 0.1, "output": 0.3}
    expected = (Decimal("0.1") * whole + Decimal("0.3") * output) / 10**6
    assert cost(usage, **OPENAI, models=[], prices=flat) == expected


@given(st.integers(-5, 50), st.integers(-5, 50), st.integers(-5, 50), st.integers(0, 9))
def test_counts_that_do_not_add_up_break_nothing(whole, cached, written, output):
    usage = UsageDelta(whole, output, cached, written)
    for prices in (OWN, None):
        priced = cost(usage, **OPENAI, models=["gpt-4.1-mini"], prices=prices)
        assert priced is not None
        assert priced >= 0


# What staff write


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({}, []),
        (OWN, []),
        ({"input": "0.10", "output": 1}, []),
        ({"input": 1}, ["'output' is missing."]),
        ({"input": -1, "output": 1}, ["'input' must be USD per million tokens"]),
        ({"input": True, "output": 1}, ["'input' must be USD per million tokens"]),
        ({"input": 1, "output": "much"}, ["'output' must be USD per million tokens"]),
        ({"input": 1, "output": 1, "audio": 1}, ["'audio' is not a price"]),
        ({**OWN, "web_search": "10", "file_search": 2.5}, []),
        ({**OWN, "web_search": -1}, ["'web_search' must be USD per 1,000 searches"]),
        ({**OWN, "tiers": {"flex": 0.5, "priority": "1.8", "batch": 0}}, []),
        ({**OWN, "tiers": [0.5]}, ["'tiers' must be factors by tier"]),
        ({**OWN, "tiers": {"flex": -1}}, ["'tiers': 'flex' must be a factor"]),
        ({**OWN, "tiers": {"flex": 101}}, ["'tiers': 'flex' must be a factor"]),
        ({**OWN, "tiers": {"flex": None}}, ["'tiers': 'flex' must be a factor"]),
        ({**OWN, "tiers": {"Flex": 1}}, ["'tiers': 'Flex' is not a tier with"]),
        ({**OWN, "tiers": {"default": 1}}, ["'tiers': 'default' is not a tier with"]),
        ({"tiers": {"flex": 1}}, ["'input' is missing.", "'output' is missing."]),
    ],
)
def test_wrong_prices_are_named(prices, message):
    found = problems(prices)
    assert len(found) == len(message)
    assert all(
        text.startswith(start) for text, start in zip(found, message, strict=True)
    )


def test_cache_writes_of_an_hour_cost_more_than_those_of_five_minutes():
    def price(five_minutes: int, hour: int, prices: Any = None) -> Any:
        written = five_minutes + hour
        found = UsageDelta(
            written, 0, cache_write_tokens=written, cache_write_1h_tokens=hour
        )
        return cost(
            found,
            kind="anthropic",
            base_url="https://api.anthropic.com",
            models=["claude-sonnet-4-5"],
            prices=prices,
        )

    # 3.75 and 6 USD for a million tokens, at 3 for plain input.
    assert price(100_000, 0) == Decimal("0.375")
    assert price(0, 100_000) == Decimal("0.6")
    assert price(100_000, 100_000) == Decimal("0.975")
    own = {"input": 1, "output": 1, "cache_write": 2}
    assert price(100_000, 0, own) == Decimal("0.2")
    assert price(0, 100_000, own) == Decimal("0.2")  # twice the input's
    assert price(0, 100_000, {**own, "cache_write_1h": 5}) == Decimal("0.5")


def test_anthropic_s_cache_writes_are_told_apart():
    found = usage_of(
        {
            "input_tokens": 1,
            "output_tokens": 2,
            "cache_creation_input_tokens": 30,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 10,
                "ephemeral_1h_input_tokens": 20,
            },
        }
    )
    assert (found.cache_write_tokens, found.cache_write_1h_tokens) == (30, 20)


# What a host counts apart from its answer

ANTHROPIC = {"kind": "anthropic", "base_url": "https://api.anthropic.com"}


def with_iterations(*iterations: dict[str, Any]) -> UsageDelta:
    counts = {"input_tokens": 162, "output_tokens": 11}
    message = {"type": "message", **counts}
    return usage_of({**counts, "iterations": [*iterations, message]})


COMPACTION = {"type": "compaction", "input_tokens": 99_195, "output_tokens": 81}
ADVICE = {
    "type": "advisor_message",
    "model": "claude-opus-4-5",
    "input_tokens": 2543,
    "output_tokens": 18,
}


def test_the_tokens_of_a_compaction_are_paid_like_those_of_its_answer():
    found = with_iterations(COMPACTION)
    assert (found.input_tokens, found.output_tokens) == (162, 11)
    assert is_well_formed(found)
    assert billed_tokens(found) == 162 + 11 + 99_195 + 81
    whole = UsageDelta(162 + 99_195, 11 + 81)
    for prices in (OWN, None):
        models = ["claude-sonnet-4-5"]
        assert cost(found, **ANTHROPIC, models=models, prices=prices) == cost(
            whole, **ANTHROPIC, models=models, prices=prices
        )
    assert not is_guess(found, **ANTHROPIC, models=models)


def test_advice_costs_what_its_own_model_costs():
    found = with_iterations(ADVICE)
    models = ["claude-sonnet-4-5"]
    answer = cost(UsageDelta(162, 11), **ANTHROPIC, models=models)
    advice = cost(UsageDelta(2543, 18), **ANTHROPIC, models=["claude-opus-4-5"])
    assert cost(found, **ANTHROPIC, models=models) == answer + advice
    assert billed_tokens(found) == 162 + 11 + 2543 + 18
    assert not is_guess(found, **ANTHROPIC, models=models)


def test_advice_of_an_unlisted_model_is_a_guess_at_the_price_of_the_answer():
    found = with_iterations({**ADVICE, "model": "unlisted"})
    models = ["claude-sonnet-4-5"]
    guess = cost(UsageDelta(162 + 2543, 11 + 18), **ANTHROPIC, models=models)
    assert cost(found, **ANTHROPIC, models=models) == guess
    assert is_guess(found, **ANTHROPIC, models=models)


def test_what_is_counted_apart_is_added_up_with_the_rest():
    both = add_usage(with_iterations(COMPACTION), with_iterations(ADVICE))
    assert include_apart(both) == UsageDelta(
        2 * 162 + 99_195 + 2543, 2 * 11 + 81 + 18, raw=both.raw
    )


@pytest.mark.parametrize("nonsense", ["x", {"a": 1}, [None, 1, {"type": []}], 7])
def test_iterations_that_are_none_are_passed_over(nonsense: Any):
    found = usage_of({"input_tokens": 1, "output_tokens": 2, "iterations": nonsense})
    assert billed_tokens(found) == 3
