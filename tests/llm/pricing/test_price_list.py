"""The bundled list against the package that it was taken from."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import orjson
import pytest
from genai_prices import Usage
from genai_prices.data import providers
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import calc_unit_price

from llm.management.commands.price_list import render_price_list
from llm.pricing import price_list
from llm.pricing.price_list import (
    DATA,
    HOUR_FACTOR,
    MILLION,
    cost,
    find_listing,
    matches,
)

NAMES = (
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "output",
    "web_search",
    "file_search",
)
USED = [
    (1, 0, 0, 0, 1, 0, 0),
    (900, 90, 10, 0, 77, 0, 0),
    (128_001, 0, 0, 0, 8_000, 3, 0),
    (0, 200_001, 3, 40_000, 1, 0, 2),
    (100_000, 100_000, 90_000, 10_000, 1, 1, 1),
    (0, 0, 0, 0, 0, 0, 0),
]
RANDOM_USES = 3  # for each model, time and kind of request
USUAL: Mapping[str, str] = {}
#: What the package knows no prices for.
UNLISTED = {"service_tier": "slow", "speed": "slow", "processing": "slow"}


#: A list of hundreds of models takes half a minute.
each_host = pytest.mark.parametrize(
    "host",
    [
        pytest.param(
            host, marks=[pytest.mark.slow] if len(host.models) > 60 else [], id=host.id
        )
        for host in providers
    ],
)


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_list, "load_hosts", cache(price_list.load_hosts))


def names_in(clause: Any) -> Iterator[str]:
    """That a condition names, and those names with something around them."""
    for value in vars(clause).values():
        if isinstance(value, str):
            yield from (value, f"{value}-20260131", f"x{value}")
        else:
            for each in value:
                yield from names_in(each)


def times_of(model: Any) -> Iterator[datetime]:
    yield datetime(2026, 11, 21, 12, tzinfo=UTC)
    conditional = model.prices if isinstance(model.prices, list) else []
    for each in (*conditional, *(model.price_variants or ())):
        if day := getattr(each.constraint, "start_date", None):
            begun = datetime(day.year, day.month, day.day, tzinfo=UTC)
            yield from (begun, begun - timedelta(microseconds=1))
        elif each.constraint:
            for clock in (each.constraint.start_time, each.constraint.end_time):
                then = datetime.combine(datetime(2026, 1, 2), clock)
                then = then.replace(tzinfo=clock.tzinfo or UTC).astimezone(UTC)
                yield from (then, then - timedelta(microseconds=1))


def requests_of(model: Any) -> Iterator[Mapping[str, str]]:
    """Each kind of request that the package prices apart, and all as one tier."""
    yield USUAL
    if model.price_variants:
        yield UNLISTED
        for variant in model.price_variants:
            yield variant.when
            yield dict.fromkeys(UNLISTED, next(iter(variant.when.values())))


def uses_of(model: Any) -> Iterator[tuple[int, ...]]:
    yield from USED
    chance = random.Random(model.id)
    for _ in range(RANDOM_USES):
        tokens = [chance.randrange(10 ** chance.randrange(1, 7)) for _ in range(5)]
        yield (*tokens, chance.randrange(9), chance.randrange(9))


def expected(
    model: Any,
    host: Any,
    used: tuple[int, ...],
    now: datetime,
    request: Mapping[str, str] = USUAL,
) -> Decimal:
    plain, cached, written, hourly, output, searches, file_searches = used
    whole = plain + cached + written + hourly
    prices = model.get_prices(now, request)
    usage = Usage(
        input_tokens=whole,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=output,
        web_searches=searches,
        storage_searches=file_searches,
    )
    more = Decimal(0)
    if prices.cache_write_1h_mtok is not None:
        usage.cache_write_1h_tokens = hourly
        usage.cache_write_tokens = written + hourly
    elif hourly:  # Anthropic's rule, which the package does not know
        more = calc_unit_price(prices.input_mtok, hourly, whole, MILLION)
        more *= HOUR_FACTOR - 1
    priced = model.calc_price(
        usage, host, genai_request_timestamp=now, price_context=request
    )
    return Decimal(priced.total_price) + more


def by_name(used: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(NAMES, used, strict=True))


def test_it_is_the_list_of_the_installed_package():
    assert DATA.read_bytes() == render_price_list(), (
        "write it anew: manage.py price_list"
    )


@each_host
def test_every_model_has_the_price_of_the_package(host: Any):
    listed = map(orjson.loads, price_list.load_hosts()[host.id].models)
    for model, (_, *prices) in zip(host.models, listed, strict=True):
        listing = price_list.Listing.read(*prices)
        for now in times_of(model):
            for request in requests_of(model):
                tariff = listing.at(now, request)
                for used in uses_of(model):
                    ours = tariff.cost(by_name(used))
                    theirs = expected(model, host, used, now, request)
                    assert ours == theirs, (model.id, now, request, used)


@each_host
def test_every_name_leads_to_the_same_model_as_in_the_package(host: Any):
    now, used = datetime(2026, 11, 21, 12, tzinfo=UTC), (900, 90, 10, 0, 77, 1, 1)
    names = {name for model in host.models for name in names_in(model.match)}
    names |= {"", "no-such-model", "GPT-4.1-MINI", "openai/gpt-4.1-mini"}
    for name in sorted(names):
        ours = cost(by_name(used), host.id, "", name, now)
        try:
            _, model = get_snapshot().find_provider_model(name, None, host.id, None)
        except LookupError:
            assert ours is None, name
        else:
            assert ours == expected(model, host, used, now), name


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "https://api.anthropic.com",
        "https://generativelanguage.googleapis.com/v1beta",
        "https://openrouter.ai/api/v1",
        "https://api.groq.com/openai/v1",
        "https://name.openai.azure.com/openai/v1",
        "https://bedrock-runtime.us-east-1.amazonaws.com",
        "http://localhost:11434/v1",
    ],
)
def test_hosts_are_known_by_their_address(url: str):
    for name in ("gpt-4.1-mini", "claude-sonnet-4-5", "openai/gpt-oss-120b"):
        try:
            get_snapshot().find_provider_model(name, None, None, url)
        except LookupError:
            assert find_listing("", url, name) is None
        else:
            assert find_listing("", url, name)


def test_a_condition_that_is_not_known_is_no_silent_no():
    with pytest.raises(ValueError, match="unknown condition: 'sounds_like'"):
        matches({"sounds_like": "x"}, "x")
