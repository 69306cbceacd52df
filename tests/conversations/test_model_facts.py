"""What the list of models says about each of them."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.requests.model_facts import abilities, describe_model
from llm.models import LanguageModel, Provider


def a_model(**fields: Any) -> LanguageModel:
    provider = Provider(name="Workshop", kind="openai_compatible")
    return LanguageModel(provider=provider, name="orchard", **fields)


def described(**fields: Any) -> str:
    return describe_model(a_model(**fields))


def test_what_is_known_is_said_in_one_line():
    words = described(
        context_window=200_000,
        prices={"input": 3, "output": "15.5"},
    )
    assert words == (
        "Workshop · 200,000 tokens of context · $3 in, $15.50 out per million tokens"
    )


def test_a_price_with_a_date_replaces_the_one_without():
    schedule = [
        {"from": "2020-01-01T00:00:00+00:00", "prices": {"input": 1, "output": 2}}
    ]
    words = described(prices={"input": 3, "output": 15}, price_schedule=schedule)
    assert words == "Workshop · $1 in, $2 out per million tokens"


def test_only_what_a_model_can_do_is_shown_as_an_ability():
    able = {"tools": True, "vision": True, "reasoning": False}
    shown = [each.words for each in abilities(a_model(capabilities=able))]
    assert shown == ["sees pictures", "uses tools"]


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
