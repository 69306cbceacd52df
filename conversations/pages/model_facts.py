"""What people read about a model before they choose it."""

from __future__ import annotations

from decimal import Decimal

from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import gettext

from llm.models import LanguageModel
from llm.pricing.cost import cost
from llm.router import capabilities
from llm.wire.deltas import UsageDelta

_SAMPLE = 1000  # tokens; more may have another price
_UNIT = 1_000_000  # tokens that prices are stated for


def describe_model(model: LanguageModel) -> str:
    """Provider, context, abilities and price, as far as they are known."""
    known = capabilities(model)
    able = {
        gettext("thinks"): known.reasoning,
        gettext("sees pictures"): known.vision,
        gettext("uses tools"): known.tools,
    }
    facts = [model.provider.name]
    if known.context_window:
        count = number_format(known.context_window, force_grouping=True)
        facts.append(gettext("%(count)s tokens of context") % {"count": count})
    facts += [words for words, is_so in able.items() if is_so]
    if settings.SHOW_COSTS and (price := _describe_price(model)):
        facts.append(price)
    return " · ".join(facts)


def _describe_price(model: LanguageModel) -> str:
    read = _price_of(model, UsageDelta(input_tokens=_SAMPLE, output_tokens=0))
    written = _price_of(model, UsageDelta(input_tokens=0, output_tokens=_SAMPLE))
    if read is None or written is None:
        return ""
    prices = {"read": _in_dollars(read), "written": _in_dollars(written)}
    words = gettext("$%(read)s in, $%(written)s out per million tokens")
    return words % prices


def _price_of(model: LanguageModel, sample: UsageDelta) -> Decimal | None:
    """USD of a million tokens."""
    provider = model.provider
    price = cost(
        sample,
        kind=provider.kind,
        base_url=provider.base_url,
        models=[model.name],
        prices=model.prices,
    )
    return None if price is None else price * _UNIT / _SAMPLE


def _in_dollars(amount: Decimal) -> str:
    short = amount.quantize(Decimal("0.01"))
    return number_format(short, 0 if short == short.to_integral() else 2)
