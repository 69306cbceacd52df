"""Amounts of US dollars as people read them."""

from __future__ import annotations

from decimal import Decimal

from django.utils.formats import number_format


def format_dollars(amount: Decimal | float) -> str:
    """`$0.0123`: two places, or as many as the first three digits need; with the
    separators of the language."""
    exact = Decimal(amount)
    if exact == 0:
        return "$0"
    places = max(2, 2 - exact.adjusted())
    text = f"{exact:.{places}f}"
    decimals = len(text.partition(".")[2].rstrip("0"))
    number = number_format(Decimal(text), max(2, decimals), force_grouping=True)
    return f"${number}"
