"""Write the prices of the installed package `genai-prices` to llm/data/prices.jsonl.

The package is a development dependency. Unknown kinds of prices and conditions raise an
error, so that no price is lost silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from importlib.metadata import version
from typing import Any

import orjson
from django.core.management.base import BaseCommand
from genai_prices import types as listed
from genai_prices.data import providers

from llm.pricing.price_list import DATA

#: Parley's name of a price by genai-prices' name. Other prices have units that
#: `UsageDelta` does not count.
NAMES = {
    "input_mtok": "input",
    "cache_read_mtok": "cached_input",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_mtok": "output",
    "requests_kcount": "request",
    "web_searches_kcount": "web_search",
    "storage_searches_kcount": "file_search",
}


class Command(BaseCommand):
    help = "Write the installed genai-prices' list to llm/data/prices.jsonl."

    def handle(self, *args: Any, **options: Any) -> None:
        DATA.write_bytes(render_price_list())
        self.stdout.write(f"Wrote {DATA}.")


def render_price_list() -> bytes:
    """JSON lines: one for each host, followed by one for each of its models."""
    lines: list[Any] = [{"source": f"genai-prices {version('genai-prices')}"}]
    for provider in providers:
        lines.append(_host(provider))
        lines += map(_model, provider.models)
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def _host(provider: listed.Provider) -> dict[str, Any]:
    head: dict[str, Any] = {"id": provider.id, "url": provider.api_pattern}
    if others := provider.fallback_model_providers:
        head |= {"others": [p.id for o in others for p in providers if p.id == o]}
    return head


def _model(model: listed.ModelInfo) -> list[Any]:
    line = [_match(model.match), list(_tariffs(model.prices))]
    variants = list(_variants(model.price_variants or ()))
    return [*line, variants] if variants else line


def _match(clause: Any) -> Any:
    match clause:
        case listed.ClauseEquals(equals=name):
            return name.lower()
        case listed.ClauseStartsWith(starts_with=text):
            return {"starts_with": text.lower()}
        case listed.ClauseEndsWith(ends_with=text):
            return {"ends_with": text.lower()}
        case listed.ClauseContains(contains=text):
            return {"contains": text.lower()}
        case listed.ClauseRegex(regex=pattern):
            return {"regex": pattern}
        case listed.ClauseOr(or_=clauses):
            return [_match(each) for each in clauses]
        case listed.ClauseAnd(and_=clauses):
            return {"and": [_match(each) for each in clauses]}
    raise TypeError(f"a condition of an unknown kind: {clause!r}")


def _tariffs(
    prices: listed.ModelPrice | Sequence[listed.ConditionalPrice],
) -> Iterator[dict[str, Any]]:
    if isinstance(prices, listed.ModelPrice):
        yield {"prices": _prices(prices)}
        return
    for each in prices:
        yield {**_when(each.constraint), "prices": _prices(each.prices)}


def _variants(variants: Sequence[listed.PriceVariant]) -> Iterator[dict[str, Any]]:
    """Those that change a price which we read."""
    for each in variants:
        if prices := _prices(each.prices):
            yield {"when": each.when, **_when(each.constraint), "prices": prices}


def _when(constraint: Any) -> dict[str, Any]:
    match constraint:
        case None:
            return {}
        case listed.StartDateConstraint(start_date=day):
            return {"since": day.isoformat()}
        case listed.TimeOfDateConstraint(start_time=begin, end_time=end):
            return {"between": [_utc(begin), _utc(end)]}
    raise TypeError(f"a time of an unknown kind: {constraint!r}")


def _utc(clock: time) -> str:
    if clock.tzinfo is not None:
        day = datetime.combine(date(1970, 1, 1), clock)
        clock = day.astimezone(UTC).time()
    return clock.isoformat()


def _prices(prices: listed.ModelPrice) -> dict[str, Any]:
    return {
        NAMES[name]: _price(price)
        for name, price in vars(prices).items()
        if name in NAMES and price is not None
    }


def _price(price: Any) -> Any:
    match price:
        case Decimal():
            return str(price)
        case listed.TieredPrices(base=base, tiers=tiers):
            return [str(base), *([tier.start, str(tier.price)] for tier in tiers)]
    raise TypeError(f"a price of an unknown kind: {price!r}")
