"""What people and programs read about a model before they choose it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import gettext

from llm.models import LanguageModel
from llm.pricing.cost import cost, prices_at
from llm.router import capabilities
from llm.wire.deltas import UsageDelta

_SAMPLE = 1000  # tokens; more may have another price
_UNIT = 1_000_000  # tokens that prices are stated for


@dataclass(frozen=True, slots=True)
class Ability:
    """Something that a model can do, with the icon that the pages show for it."""

    icon: str
    words: str


@dataclass(frozen=True, slots=True)
class Prices:
    """USD of a million tokens."""

    read: Decimal
    written: Decimal


def abilities(model: LanguageModel) -> Iterator[Ability]:
    """Those that are known."""
    known = capabilities(model)
    if known.reasoning:
        yield Ability("thought", gettext("thinks"))
    if known.vision:
        yield Ability("picture", gettext("sees pictures"))
    if known.tools:
        yield Ability("tool", gettext("uses tools"))


def describe_model(model: LanguageModel) -> str:
    """Provider, context and price, as far as they are known."""
    known = capabilities(model)
    facts = [model.provider.name]
    if known.context_window:
        count = number_format(known.context_window, force_grouping=True)
        facts.append(gettext("%(count)s tokens of context") % {"count": count})
    if (prices := find_prices(model)) is not None:
        shown = {
            "read": _in_dollars(prices.read),
            "written": _in_dollars(prices.written),
        }
        facts.append(
            gettext("$%(read)s in, $%(written)s out per million tokens") % shown
        )
    return " · ".join(facts)


def find_prices(model: LanguageModel) -> Prices | None:
    """None if they are not known, or staff hide costs."""
    if not settings.SHOW_COSTS:
        return None
    read = _price_of(model, UsageDelta(input_tokens=_SAMPLE, output_tokens=0))
    written = _price_of(model, UsageDelta(input_tokens=0, output_tokens=_SAMPLE))
    return None if read is None or written is None else Prices(read, written)


def _price_of(model: LanguageModel, sample: UsageDelta) -> Decimal | None:
    """USD of a million tokens."""
    provider = model.provider
    price = cost(
        sample,
        kind=provider.kind,
        base_url=provider.base_url,
        models=[model.name],
        prices=prices_at(model.prices, model.price_schedule),
    )
    return None if price is None else price * _UNIT / _SAMPLE


def _in_dollars(amount: Decimal) -> str:
    short = amount.quantize(Decimal("0.01"))
    return number_format(short, 0 if short == short.to_integral() else 2)
