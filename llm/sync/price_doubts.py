"""Prices of a provider's list that may be a mistake: in another unit, or missing.

A price of a cache is left for staff by itself; one of input or output casts doubt on
all of the model's prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from django.utils.translation import gettext as _

MAX_FACTOR = 20  # between a price that counts and a new one
CACHE_PRICES = frozenset({"cached_input", "cache_write"})


def find_doubts(
    model: str, before: Mapping[str, Decimal], after: Mapping[str, Decimal]
) -> dict[str, str]:
    """Why each doubtful price is left for staff, by its name."""
    is_free = model.endswith(":free")
    found = {}
    for name, new in after.items():
        old = before.get(name)
        costs_nothing_anyway = name in CACHE_PRICES and after.get("input") == 0
        if new == 0 and old != 0 and not (is_free or costs_nothing_anyway):
            found[name] = _("zero may mean that the price is missing")
        elif old and new and not 1 / MAX_FACTOR <= new / old <= MAX_FACTOR:
            found[name] = _("more than %(factor)d times as much or as little") % {
                "factor": MAX_FACTOR
            }
    return found


def without_doubtful(
    model: str, before: Mapping[str, Decimal], after: Mapping[str, Decimal]
) -> dict[str, Decimal]:
    """The prices to store without a look by staff. A doubtful price of a cache stays
    what it is now. {} if other prices are doubtful too, or none changes."""
    doubts = find_doubts(model, before, after).keys()
    if doubts - CACHE_PRICES:
        return {}
    stored = {
        name: before[name] if name in doubts else price
        for name, price in after.items()
        if name not in doubts or name in before
    }
    is_same = all(before.get(name) == price for name, price in stored.items())
    return {} if is_same else stored
