"""The bundled price list: what hosts ask for their models.

It is that of `genai-prices`, as `manage.py price_list` writes it down, with what has no
bearing on our calls left out: four prices a model, and one a request. That package
would take 7 MB of every server's memory, 25 where it is compiled. Here the list stays
on disk, a line a model; those of one host are read when one of its models has been
asked for the first time. `tests/llm/test_price_list.py` holds all of it against the
package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

DATA = Path(__file__).parent / "data" / "prices.jsonl"
MILLION = 1_000_000  # tokens, the unit of prices
_REQUESTS = 1_000  # the unit of the price of a request
_COMPACT_DATE = re.compile(r"-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


@dataclass(frozen=True, slots=True)
class Price:
    """USD for a unit. From `steps` on another one holds for all of it: pairs of tokens
    of the prompt that are exceeded, and price, in ascending order."""

    base: Decimal
    steps: Sequence[tuple[int, Decimal]] = ()

    @classmethod
    def read(cls, told: str | list[Any]) -> Price:
        if isinstance(told, str):
            return cls(Decimal(told))
        base, *steps = told
        return cls(Decimal(base), [(after, Decimal(price)) for after, price in steps])

    def at(self, prompt: int) -> Decimal:
        reached = [price for after, price in self.steps if prompt > after]
        return reached[-1] if reached else self.base


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices that hold for ever, from a day on, or at a time of every day (UTC)."""

    prices: Mapping[str, Price]
    since: date | None = None
    between: tuple[time, time] | None = None

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Tariff:
        since, between = told.get("since"), told.get("between")
        return cls(
            {name: Price.read(price) for name, price in told["prices"].items()},
            date.fromisoformat(since) if since else None,
            (time.fromisoformat(between[0]), time.fromisoformat(between[1]))
            if between
            else None,
        )

    def holds(self, now: datetime) -> bool:
        if self.since is not None:
            return now.date() >= self.since
        if self.between is None:
            return True
        begin, end, clock = *self.between, now.time()
        if end < begin:
            return clock >= begin or clock < end
        return begin <= clock < end

    def cost(self, tokens: Mapping[str, int]) -> Decimal:
        """Of one call. What has no price of its own costs what input costs."""
        counts, total = dict(tokens), Decimal(0)
        prompt = counts["input"] + counts["cached_input"] + counts["cache_write"]
        for name in ("cached_input", "cache_write"):
            if name not in self.prices:
                counts["input"] += counts.pop(name)
        for name, price in self.prices.items():
            if name == "request":
                total += price.base / _REQUESTS
            else:
                total += price.at(prompt) * counts[name] / MILLION
        return total


def cost(
    tokens: Mapping[str, int], kind: str, base_url: str, model: str, now: datetime
) -> Decimal | None:
    """`tokens` by the four names of prices, each counted once. `now` in UTC."""
    tariffs = tariffs_of(kind, base_url, model)
    if not tariffs:
        return None
    # The last that holds; the first is for all other times.
    last = next((each for each in reversed(tariffs) if each.holds(now)), tariffs[0])
    return last.cost(tokens)


@lru_cache(maxsize=1_000)
def tariffs_of(kind: str, base_url: str, model: str) -> Sequence[Tariff]:
    """() where the list has no such host or model.

    By address first, as many a host is asked through another one's wire format.
    """
    hosts, name = _hosts(), model.lower()
    for host in _places(hosts, kind, base_url):
        others = [hosts[other] for other in host.others]
        for spelled in dict.fromkeys((name, _with_dashes(name))):
            for each in (host, *others):
                for match, tariffs in map(orjson.loads, each.models):
                    if matches(match, spelled):
                        return [Tariff.read(told) for told in tariffs]
    return ()


@dataclass(frozen=True, slots=True)
class _Host:
    id: str
    url: str  # a pattern
    others: Sequence[str] = ()  # hosts whose models it has too
    #: JSON, not read yet: a condition of the name, and tariffs.
    models: list[bytes] = field(default_factory=list)


def _hosts() -> dict[str, _Host]:
    hosts: list[_Host] = []
    for line in DATA.read_bytes().splitlines()[1:]:
        if line.startswith(b"["):
            hosts[-1].models.append(line)
        else:
            hosts.append(_Host(**orjson.loads(line)))
    return {host.id: host for host in hosts}


def _places(hosts: Mapping[str, _Host], kind: str, base_url: str) -> Iterator[_Host]:
    for host in hosts.values():
        if re.match(host.url, base_url):
            yield host
            break
    if kind in hosts:
        yield hosts[kind]


def matches(match: Any, name: str) -> bool:
    """`match` is a name, a list of alternatives, or one condition by its name."""
    if isinstance(match, str):
        return bool(name == match)
    if isinstance(match, list):
        return any(matches(each, name) for each in match)
    ((kind, told),) = match.items()
    match kind:
        case "starts_with":
            return name.startswith(told)
        case "ends_with":
            return name.endswith(told)
        case "contains":
            return told in name
        case "regex":
            return bool(re.search(told, name))
        case "and":
            return all(matches(each, name) for each in told)
    raise ValueError(f"The price list has an unknown condition: {kind!r}.")


def _with_dashes(name: str) -> str:
    """Some write a model's day without dashes: `-20261121`."""

    def spelled(found: re.Match[str]) -> str:
        year, month, day = map(int, found.groups())
        try:
            return f"-{date(year, month, day)}"
        except ValueError:
            return found.group()

    return _COMPACT_DATE.sub(spelled, name)
