"""The bundled price list of hosts and their models.

`manage.py price_list` writes it from `genai-prices`, reduced to what our calls need:
prices of tokens, searches and a request, and what other service tiers cost. That
package would take 7 MB of memory in every server process, 25 when it is compiled. Here
the list stays on disk, one line a model; the models of a host are parsed when one of
them is looked up for the first time. `tests/llm/pricing/test_price_list.py` compares
all of it with the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

DATA = Path(__file__).parent.parent / "data" / "prices.jsonl"
#: The price of input that is written to a cache for an hour, of that of plain input.
#: Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching#pricing
HOUR_FACTOR = 2
MILLION = 1_000_000  # tokens, the unit of prices
THOUSAND = 1_000
#: Prices for a thousand: of requests, and of what the host does for one.
_BY_THE_THOUSAND = frozenset({"request", "web_search", "file_search"})
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
    """Prices valid always, from a day on, or at a time of every day (UTC).

    `when`: of a variant, which requests it is for. A variant has only the prices that
    differ from the usual ones.
    """

    prices: Mapping[str, Price]
    since: date | None = None
    between: tuple[time, time] | None = None
    when: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Tariff:
        since, between = data.get("since"), data.get("between")
        return cls(
            {name: Price.read(price) for name, price in data["prices"].items()},
            date.fromisoformat(since) if since else None,
            (time.fromisoformat(between[0]), time.fromisoformat(between[1]))
            if between
            else None,
            data.get("when", {}),
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

    def cost(self, used: Mapping[str, int]) -> Decimal:
        """The cost of one call. A price of tokens that is missing is that of input, and
        twice that for tokens that are cached for an hour."""
        counts, total = dict(used), Decimal(0)
        prompt = counts["input"] + counts["cached_input"] + counts["cache_write"]
        for_an_hour = counts.get("cache_write_1h", 0)
        prompt += for_an_hour
        has_hourly = "cache_write_1h" in self.prices
        if for_an_hour and not has_hourly and "input" in self.prices:
            hourly = self.prices["input"].at(prompt)
            total += hourly * for_an_hour * HOUR_FACTOR / MILLION
        for name in ("cached_input", "cache_write"):
            if name not in self.prices:
                counts["input"] += counts.pop(name)
        for name, price in self.prices.items():
            count = 1 if name == "request" else counts.get(name, 0)
            if count:
                unit = THOUSAND if name in _BY_THE_THOUSAND else MILLION
                total += price.at(prompt) * count / unit
        return total


@dataclass(frozen=True, slots=True)
class Listing:
    """All that the list has of a model: its usual prices, and those of requests of
    other kinds, of which the first counts that has a price."""

    tariffs: Sequence[Tariff]
    variants: Sequence[Tariff] = ()

    @classmethod
    def read(cls, tariffs: Iterable[Any], variants: Iterable[Any] = ()) -> Listing:
        return cls([*map(Tariff.read, tariffs)], [*map(Tariff.read, variants)])

    def at(self, now: datetime, request: Mapping[str, str] | None = None) -> Tariff:
        """What counts at `now`, in UTC, for a `request` with these properties."""
        applying = (each for each in reversed(self.tariffs) if each.applies(now))
        usual = next(applying, self.tariffs[0])
        if not request:
            return usual
        prices = dict(usual.prices)
        for each in reversed(self.variants_for(request, now)):
            prices |= each.prices
        return Tariff(prices)

    def variants_for(
        self, request: Mapping[str, str], now: datetime
    ) -> Sequence[Tariff]:
        return [
            each
            for each in self.variants
            if each.when.items() <= request.items() and each.applies(now)
        ]

    @property
    def has_conditions(self) -> bool:
        """Whether more than the tokens of a class decides what a call costs. Batches
        are no calls."""
        return any(each.has_conditions for each in self.tariffs) or any(
            "processing" not in each.when for each in self.variants
        )


def cost(
    used: Mapping[str, int],
    kind: str,
    base_url: str,
    model: str,
    now: datetime,
    request: Mapping[str, str] | None = None,
) -> Decimal | None:
    """The cost of what was `used`: tokens and searches, each counted under one of the
    names of prices. `now` is in UTC."""
    listing = find_listing(kind, base_url, model)
    return listing.at(now, request).cost(used) if listing else None


def prices_of(
    kind: str, base_url: str, model: str, now: datetime
) -> Mapping[str, Decimal]:
    """USD per million tokens of a short prompt, and per thousand searches, by name; {}
    if the list has none."""
    listing = find_listing(kind, base_url, model)
    prices = listing.at(now).prices if listing else {}
    return {name: price.base for name, price in prices.items() if name != "request"}


@lru_cache(maxsize=1_000)
def find_listing(kind: str, base_url: str, model: str) -> Listing | None:
    """None if the list has no such host or model.

    Looks up the address first, as many hosts are used with the wire format of another.
    """
    hosts, name = load_hosts(), model.lower()
    for host in _find_hosts(hosts, kind, base_url):
        others = [hosts[other] for other in host.others]
        for spelling in dict.fromkeys((name, _with_dashes(name))):
            for each in (host, *others):
                if (prices := _find_prices(each, spelling)) is None:
                    continue
                # Another host's prices may hold here, but not its tiers.
                return Listing.read(*(prices if each is host else prices[:1]))
    return None


@dataclass(frozen=True, slots=True)
class _Host:
    id: str
    url: str  # a regular expression
    others: Sequence[str] = ()  # hosts whose models it offers too
    #: JSON that is not parsed yet: a condition on the name, tariffs, variants.
    models: list[bytes] = field(default_factory=list)


def load_hosts() -> dict[str, _Host]:
    hosts: list[_Host] = []
    for line in DATA.read_bytes().splitlines()[1:]:
        if line.startswith(b"["):
            hosts[-1].models.append(line)
        else:
            hosts.append(_Host(**orjson.loads(line)))
    return {host.id: host for host in hosts}


def _find_prices(host: _Host, name: str) -> list[Any] | None:
    """Tariffs of the first model with this name, and its variants if there are any."""
    prices: list[Any]
    for match, *prices in map(orjson.loads, host.models):
        if matches(match, name):
            return prices
    return None


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
