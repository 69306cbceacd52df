"""Amounts of money are readable in every language, however small or large."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils.translation import override

from llm.pricing.dollars import format_dollars


@pytest.mark.parametrize(
    ("amount", "english", "german"),
    [
        (Decimal(0), "$0", "$0"),
        (0.0, "$0", "$0"),
        (Decimal("0.000012"), "$0.000012", "$0,000012"),
        (Decimal("0.01234"), "$0.0123", "$0,0123"),
        (Decimal("0.5"), "$0.50", "$0,50"),
        (Decimal("12.3456"), "$12.35", "$12,35"),
        (Decimal("1436208.77"), "$1,436,208.77", "$1.436.208,77"),
        (1730.4, "$1,730.40", "$1.730,40"),
    ],
)
def test_an_amount_has_its_first_three_digits_and_separators(
    amount: Decimal | float, english: str, german: str
):
    with override("en"):
        assert format_dollars(amount) == english
    with override("de"):
        assert format_dollars(amount) == german
