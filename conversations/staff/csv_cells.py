"""Texts in cells of CSV files, of which a spreadsheet makes no formula."""

from __future__ import annotations

#: First characters by which a spreadsheet takes a text for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def quote_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
