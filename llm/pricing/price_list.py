"""The bundled price list of hosts and their models.

`manage.py price_list` writes it from `genai-prices`, reduced to what our calls need:
four prices for each model, and one for a request. That package would take 7 MB of
memory in every server process, 25 when it is compiled. Here the list stays on disk, one
line a model; the models of a host are parsed when one of them is looked up for the
first time. `tests/llm/pricing/test_price_list.py` compares all of it with the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

DATA = Path(__file__).parent.parent / "data" / "prices.jsonl"
#: The price of input that is written to a cache for an hour, of that of plain input.
#: Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching#pricing
HOUR_FACTOR = 2
MILLION = 1_000_000  # tokens, the unit of prices
_REQUESTS_PER_UNIT = 1_000  # unit of the price of a request
_COMPACT_DATE = re.compile(r"-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


@dataclass(frozen=True, slots=True)
class Price:
    """USD for a unit. `steps` are pairs of a prompt size in tokens and the price for
    all tokens of a larger prompt, in ascending order."""

    base: Decimal
    steps: Sequence[tuple[int, Decimal]] = ()

    @classmethod
    def read(cls, data: str | list[Any]) -> Price:
        if isinstance(data, str):
            return cls(Decimal(data))
        base, *steps = data
        return cls(Decimal(base), [(after, Decimal(price)) for after, price in steps])

    def at(self, prompt: int) -> Decimal:
        reached = [price for after, price in self.steps if prompt > after]
        return reached[-1] if reached else self.base


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices valid always, from a day on, or at a time of every day (UTC)."""

    prices: Mapping[str, Price]
    since: date | None = None
    between: tuple[time, time] | None = None

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Tariff:
        since, between = data.get("since"), data.get("between")
        return cls(
            {name: Price.read(price) for name, price in data["prices"].items()},
            date.fromisoformat(since) if since else None,
            (time.fromisoformat(between[0]), time.fromisoformat(between[1]))
            if between
            else None,
        )

    @property
    def has_conditions(self) -> bool:
        """Whether more than the tokens of a class decides the cost."""
        has_steps = any(price.steps for price in self.prices.values())
        return has_steps or "request" in self.prices or self.between is not None

    def applies(self, now: datetime) -> bool:
        if self.since is not None:
            return now.date() >= self.since
        if self.between is None:
            return True
        begin, end, clock = *self.between, now.time()
        if end < begin:
            return clock >= begin or clock < end
        return begin <= clock < end

    def cost(self, tokens: Mapping[str, int]) -> Decimal:
        """The cost of one call. A price that is missing is that of input, and twice
        that for tokens that are cached for an hour."""
        counts, total = dict(tokens), Decimal(0)
        for_an_hour = counts.pop("cache_write_1h", 0)
        prompt = counts["input"] + counts["cached_input"] + counts["cache_write"]
        prompt += for_an_hour
        if for_an_hour and "input" in self.prices:
            hourly = self.prices["input"].at(prompt)
            total += hourly * for_an_hour * HOUR_FACTOR / MILLION
        for name in ("cached_input", "cache_write"):
            if name not in self.prices:
                counts["input"] += counts.pop(name)
        for name, price in self.prices.items():
            if name == "request":
                total += price.base / _REQUESTS_PER_UNIT
            else:
                total += price.at(prompt) * counts[name] / MILLION
        return total


def cost(
    tokens: Mapping[str, int], kind: str, base_url: str, model: str, now: datetime
) -> Decimal | None:
    """The cost of `tokens`, each counted under one of the four names of prices. `now`
    is in UTC."""
    tariff = _tariff_at(kind, base_url, model, now)
    return tariff.cost(tokens) if tariff else None


def prices_of(
    kind: str, base_url: str, model: str, now: datetime
) -> Mapping[str, Decimal]:
    """USD per million tokens of a short prompt, by name; {} if the list has none."""
    tariff = _tariff_at(kind, base_url, model, now)
    prices = tariff.prices if tariff else {}
    return {name: price.base for name, price in prices.items() if name != "request"}


def _tariff_at(kind: str, base_url: str, model: str, now: datetime) -> Tariff | None:
    tariffs = tariffs_of(kind, base_url, model)
    if not tariffs:
        return None
    # The last tariff that applies; the first one is for all other times.
    return next((each for each in reversed(tariffs) if each.applies(now)), tariffs[0])


@lru_cache(maxsize=1_000)
def tariffs_of(kind: str, base_url: str, model: str) -> Sequence[Tariff]:
    """() if the list has no such host or model.

    Looks up the address first, as many hosts are used with the wire format of another.
    """
    hosts, name = load_hosts(), model.lower()
    for host in _find_hosts(hosts, kind, base_url):
        others = [hosts[other] for other in host.others]
        for spelling in dict.fromkeys((name, _with_dashes(name))):
            entries = chain.from_iterable(each.models for each in (host, *others))
            for match, tariffs in map(orjson.loads, entries):
                if matches(match, spelling):
                    return [Tariff.read(tariff) for tariff in tariffs]
    return ()


@dataclass(frozen=True, slots=True)
class _Host:
    id: str
    url: str  # a regular expression
    others: Sequence[str] = ()  # hosts whose models it offers too
    #: JSON that is not parsed yet: a condition on the name, and tariffs.
    models: list[bytes] = field(default_factory=list)


def load_hosts() -> dict[str, _Host]:
    hosts: list[_Host] = []
    for line in DATA.read_bytes().splitlines()[1:]:
        if line.startswith(b"["):
            hosts[-1].models.append(line)
        else:
            hosts.append(_Host(**orjson.loads(line)))
    return {host.id: host for host in hosts}


def _find_hosts(
    hosts: Mapping[str, _Host], kind: str, base_url: str
) -> Iterator[_Host]:
    for host in hosts.values():
        if re.match(host.url, base_url):
            yield host
            break
    if kind in hosts:
        yield hosts[kind]


def matches(match: Any, name: str) -> bool:
    """`match` is a name, a list of alternatives, or a condition and its operand."""
    if isinstance(match, str):
        return bool(name == match)
    if isinstance(match, list):
        return any(matches(each, name) for each in match)
    ((kind, operand),) = match.items()
    match kind:
        case "starts_with":
            return name.startswith(operand)
        case "ends_with":
            return name.endswith(operand)
        case "contains":
            return operand in name
        case "regex":
            return bool(re.search(operand, name))
        case "and":
            return all(matches(each, name) for each in operand)
    raise ValueError(f"The price list has an unknown condition: {kind!r}.")


def _with_dashes(name: str) -> str:
    """Some names have the model's date without dashes: `-20261121`."""

    def add_dashes(found: re.Match[str]) -> str:
        year, month, day = map(int, found.groups())
        try:
            return f"-{date(year, month, day)}"
        except ValueError:
            return found.group()

    return _COMPACT_DATE.sub(add_dashes, name)
