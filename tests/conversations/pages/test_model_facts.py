"""What the list of models says about each of them."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.pages.model_facts import describe_model
from llm.models import LanguageModel, Provider


def described(**fields: Any) -> str:
    provider = Provider(name="Workshop", kind="openai_compatible")
    return describe_model(LanguageModel(provider=provider, name="orchard", **fields))


def test_what_is_known_is_said_in_one_line():
    words = described(
        context_window=200_000,
        capabilities={"tools": True, "vision": True, "reasoning": False},
        prices={"input": 3, "output": "15.5"},
    )
    assert words == (
        "Workshop · 200,000 tokens of context · sees pictures · uses tools"
        " · $3 in, $15.50 out per million tokens"
    )


def test_nothing_is_said_of_what_is_not_known():
    assert described() == "Workshop"


def test_prices_are_shown_where_staff_show_costs(settings: Any):
    settings.SHOW_COSTS = False
    assert described(prices={"input": 3, "output": 15}) == "Workshop"


@pytest.mark.parametrize(
    "prices", [{"input": "nonsense", "output": 1}, {"input": 1}, {"output": -1}]
)
def test_a_broken_price_list_shows_no_price(prices: Any):
    assert described(prices=prices) == "Workshop"
