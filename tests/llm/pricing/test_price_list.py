"""The bundled list against the package that it was taken from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import orjson
import pytest
from genai_prices import Usage
from genai_prices.data import providers
from genai_prices.data_snapshot import get_snapshot

from llm.management.commands.price_list import render_price_list
from llm.pricing import price_list
from llm.pricing.price_list import DATA, cost, matches, tariffs_of

#: Of input, cached input, writing to the cache, output.
TOKENS = [
    (1, 0, 0, 1),
    (1_000, 0, 0, 100),
    (900, 90, 10, 77),
    (128_001, 0, 0, 8_000),
    (0, 200_001, 3, 1),
    (100_000, 100_000, 100_000, 1),
    (0, 0, 0, 0),
    (2_000_000, 0, 0, 3),
]


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
    for each in model.prices if isinstance(model.prices, list) else ():
        if day := getattr(each.constraint, "start_date", None):
            begun = datetime(day.year, day.month, day.day, tzinfo=UTC)
            yield from (begun, begun - timedelta(microseconds=1))
        elif each.constraint:
            for clock in (each.constraint.start_time, each.constraint.end_time):
                then = datetime.combine(datetime(2026, 1, 2), clock)
                then = then.replace(tzinfo=clock.tzinfo or UTC).astimezone(UTC)
                yield from (then, then - timedelta(microseconds=1))


def expected(model: Any, host: Any, tokens: tuple[int, ...], now: datetime) -> Decimal:
    plain, cached, written_, output = tokens
    usage = Usage(
        input_tokens=plain + cached + written_,
        cache_read_tokens=cached,
        cache_write_tokens=written_,
        output_tokens=output,
    )
    priced = model.calc_price(usage, host, genai_request_timestamp=now)
    return Decimal(priced.total_price)


def by_name(tokens: tuple[int, ...]) -> dict[str, int]:
    names = ("input", "cached_input", "cache_write", "output")
    return dict(zip(names, tokens, strict=True))


def test_it_is_the_list_of_the_installed_package():
    assert DATA.read_bytes() == render_price_list(), (
        "write it anew: manage.py price_list"
    )


@each_host
def test_every_model_has_the_price_of_the_package(host: Any):
    listed = map(orjson.loads, price_list.load_hosts()[host.id].models)
    for model, (_, prices) in zip(host.models, listed, strict=True):
        read = [price_list.Tariff.read(each) for each in prices]
        for now in times_of(model):
            last = next((t for t in reversed(read) if t.applies(now)), read[0])
            for tokens in TOKENS:
                ours = last.cost(by_name(tokens))
                assert ours == expected(model, host, tokens, now), (model.id, now)


@each_host
def test_every_name_leads_to_the_same_model_as_in_the_package(host: Any):
    now, tokens = datetime(2026, 11, 21, 12, tzinfo=UTC), (900, 90, 10, 77)
    names = {name for model in host.models for name in names_in(model.match)}
    names |= {"", "no-such-model", "GPT-4.1-MINI", "openai/gpt-4.1-mini"}
    for name in sorted(names):
        ours = cost(by_name(tokens), host.id, "", name, now)
        try:
            _, model = get_snapshot().find_provider_model(name, None, host.id, None)
        except LookupError:
            assert ours is None, name
        else:
            assert ours == expected(model, host, tokens, now), name


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
            assert tariffs_of("", url, name) == ()
        else:
            assert tariffs_of("", url, name)


def test_a_condition_that_is_not_known_is_no_silent_no():
    with pytest.raises(ValueError, match="unknown condition: 'sounds_like'"):
        matches({"sounds_like": "x"}, "x")
