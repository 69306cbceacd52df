"""Dated prices and retirement of models in the configuration file."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime

import pytest
import tomli_w

from llm.models import LanguageModel, ModelPrice, Provider
from project.config_file import ConfigError, dump, load

pytestmark = pytest.mark.django_db

FILE = """
[[providers]]
name = "Rack 3"
kind = "openai_compatible"
base_url = "https://rack.test/v1"

  [[providers.models]]
  name = "qwen-8"
  retires_at = 2031-02-03T04:05:06+02:00
  replacement = "Rack 3/qwen-9"

  [[providers.models]]
  name = "qwen-9"

    [[providers.models.dated_prices]]
    valid_from = 2024-01-01T00:00:00Z
    input = 1.5
    output = 6

    [[providers.models.dated_prices]]
    valid_from = "2031-01-01T00:00:00Z"
    input = 0.000001
    cached_input = 0
    output = 4
    web_search = 10
    file_search = 2.5
    tiers = {flex = 0.5, priority = 2}
"""
MODELS = "providers[Rack 3].models"


def made(text: str = FILE):
    return load(tomllib.loads(text), {})


def test_prices_and_retirement_come_from_the_file_and_go_back_into_it():
    made()
    old, new = LanguageModel.objects.order_by("name")
    assert old.replacement == new
    assert old.retires_at == datetime(2031, 2, 3, 2, 5, 6, tzinfo=UTC)
    schedule = [entry["prices"] for entry in new.price_schedule]
    assert schedule == [
        {"input": 1.5, "output": 6.0},
        {
            "input": 0.000001,
            "cached_input": 0.0,
            "output": 4.0,
            "web_search": 10.0,
            "file_search": 2.5,
            "tiers": {"flex": 0.5, "priority": 2},
        },
    ]
    assert made().changes == []
    dumped = tomli_w.dumps(dump())
    assert load(tomllib.loads(dumped), {}).changes == []
    Provider.objects.all().delete()
    load(tomllib.loads(dumped), {})
    assert tomli_w.dumps(dump()) == dumped
    assert ModelPrice.objects.count() == 2


def test_a_price_that_counts_already_is_history():
    made()
    with pytest.raises(ConfigError) as caught:
        made(FILE.replace("input = 1.5", "input = 1"))
    assert caught.value.problems == [
        f"{MODELS}[qwen-9].dated_prices[1]: this price is in effect; add one with a"
        " later valid_from instead."
    ]
    report = made(FILE.replace("output = 4", "output = 5"))
    assert list(report.changes) == [
        f"{MODELS}[qwen-9].dated_prices[2]: changed, from 2031-01-01 00:00 UTC"
    ]
    schedule = LanguageModel.objects.get(name="qwen-9").price_schedule
    assert [entry["prices"]["output"] for entry in schedule] == [6.0, 5.0]


def test_prices_that_the_file_does_not_name_stay():
    made()
    first, _, _ = FILE.partition("    [[providers.models.dated_prices]]")
    assert made(first).changes == []
    assert ModelPrice.objects.count() == 2


def test_a_model_is_brought_back_by_a_file_without_its_retirement():
    made()
    lines = FILE.splitlines()
    rest = [x for x in lines if "retires_at" not in x and "replacement" not in x]
    report = made("\n".join(rest))
    assert [change.partition(":")[0] for change in report.changes] == [
        f"{MODELS}[qwen-8].retires_at",
        f"{MODELS}[qwen-8].replacement",
    ]
    row = LanguageModel.objects.get(name="qwen-8")
    assert (row.retires_at, row.replacement) == (None, None)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("+02:00", "", "retires_at: write the time zone too, as in 2027"),
        ('"2031-01-01T00:00:00Z"', '"soon"', "valid_from: write a date and time, as"),
        ("2024-01-01T00:00:00Z", "7", "valid_from: write a date and time."),
        ("    valid_from = 2024-01-01T00:00:00Z", "", "valid_from: write the date"),
        ("output = 6", "", "Enter the prices of input and output"),
        ("flex = 0.5", "flex = 101", "'tiers': 'flex' must be a factor of the prices"),
        ("flex = 0.5", "default = 1", "'tiers': 'default' is not a tier with prices"),
        ("output = 6", "output = -6", "greater than or equal to 0"),
        ("output = 6", "cheap = 6", "unknown field 'cheap'"),
        ('"Rack 3/qwen-9"', '"Rack 3/none"', "there is no model 'Rack 3/none'."),
        ("retires_at = 2031-02-03T04:05:06+02:00", "", "Enter the date from which"),
        ('"Rack 3/qwen-9"', '"Rack 3/qwen-8"', "in turn the replacement"),
    ],
)
def test_a_mistake_is_reported_with_its_path_and_nothing_is_created(old, new, problem):
    assert old in FILE
    with pytest.raises(ConfigError) as caught:
        made(FILE.replace(old, new, 1))
    assert any(
        each.startswith(MODELS) and problem in each for each in caught.value.problems
    ), caught.value.problems
    assert not Provider.objects.filter(name="Rack 3").exists()
