"""A vendor's CSV export of usage or cost, by day and model. Pure.

OpenAI: *Usage*, *Export* of completions or of costs, whose columns are the fields of
its usage API (https://platform.openai.com/docs/api-reference/usage). Anthropic: *Usage*
and *Cost* of its console, *Export*
(https://support.claude.com/en/articles/9534590-cost-and-usage-reporting-in-the-claude-console).
Days are those of UTC. Neither vendor lists the columns of its files; these are what
exports of 2025 and 2026 have.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

MAX_FILE = 20_000_000  # bytes
MAX_LINES = 300_000
MAX_KEYS = 20_000  # days times models
MAX_DIGITS = 15  # before the point
YEARS = range(2000, 2200)
MEASURES = ("input_tokens", "cached_tokens", "output_tokens", "cost")

Row = Mapping[str, str]
Figures = dict[str, Decimal]  # by measure
DELIMITERS = (",", ";", "\t")
_GROUPED = re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
#: As spreadsheet programs write numbers where the comma separates no columns.
_DECIMAL_COMMA = re.compile(r"\A(-?\d+),(\d+(?:[eE][+-]?\d+)?)\Z", re.ASCII)
_DATE_SUFFIX = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


class BillError(ValueError):
    """The file is no export that we know; the text says what is wrong."""


@dataclass(slots=True)
class Bill:
    vendor: str
    measures: tuple[str, ...]  # what the file has
    figures: dict[tuple[date, str], Figures] = field(default_factory=dict)

    @property
    def days(self) -> tuple[date, date]:
        days = [day for day, _model in self.figures]
        return min(days), max(days)


@dataclass(frozen=True, slots=True)
class _Format:
    vendor: str
    columns: frozenset[str]  # that tell it from the other formats
    measures: tuple[str, ...]
    day: Callable[[Row], date]
    model: Callable[[Row], str]
    figures: Callable[[Row], Figures]


def read_bill(data: bytes) -> Bill:
    """Raises BillError."""
    if len(data) > MAX_FILE:
        raise BillError("The file is larger than 20 MB; export fewer days.")
    text = _decode(data)
    delimiter, form = _find_format(text)
    lines = _lines(text, delimiter)
    try:
        bill = Bill(form.vendor, form.measures)
        for row in _rows(lines, has_decimal_comma=delimiter != ","):
            _add(bill, form, row, lines.line_num)
    except csv.Error as exc:
        raise BillError(f"Line {lines.line_num}: {exc}.") from exc
    if not bill.figures:
        raise BillError("The file has no usage.")
    return bill


def _decode(data: bytes) -> str:
    """The text, without the line by which Excel names the delimiter."""
    # Excel saves "Unicode text" in UTF-16.
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as exc:
        raise BillError("The file is not UTF-8 text.") from exc
    return re.sub(r"\Asep=.\r?\n", "", text)


def _find_format(text: str) -> tuple[str, _Format]:
    """The delimiter and the format whose columns the file has. Vendors write commas;
    a spreadsheet program may have saved the file with others."""
    for delimiter in DELIMITERS:
        try:
            names = _lines(text, delimiter).fieldnames or ()
        except csv.Error as exc:
            raise BillError(f"Line 1: {exc}.") from exc
        columns = frozenset(name.strip() for name in names)
        for form in _FORMATS:
            if form.columns <= columns:
                return delimiter, form
    raise BillError(
        "These are not the columns of a usage or cost export of OpenAI or Anthropic."
        " Upload the CSV file with the first line that the vendor wrote."
    )


def _lines(text: str, delimiter: str) -> csv.DictReader[str]:
    return csv.DictReader(
        io.StringIO(text, newline=""), restval="", strict=True, delimiter=delimiter
    )


def normal_name(model: str) -> str:
    """One name for `claude-sonnet-4-5-20250929` and `Claude Sonnet 4.5`."""
    name = re.sub(r"[\s._]+", "-", model.strip().lower())[:200]
    return _DATE_SUFFIX.sub("", name)


def _rows(lines: csv.DictReader[str], *, has_decimal_comma: bool) -> Iterator[Row]:
    for number, row in enumerate(lines):
        if number >= MAX_LINES:
            raise BillError(f"The file has more than {MAX_LINES:,} lines.")
        if None in row:
            raise BillError(f"Line {lines.line_num} has too many columns.")
        values = {name.strip(): value.strip() for name, value in row.items()}
        if has_decimal_comma:
            values = {n: _DECIMAL_COMMA.sub(r"\1.\2", v) for n, v in values.items()}
        yield values


def _add(bill: Bill, form: _Format, row: Row, line: int) -> None:
    if not (model := form.model(row)):
        return  # a time without usage
    try:
        day, figures = form.day(row), form.figures(row)
    except (ValueError, OverflowError, OSError) as exc:
        raise BillError(f"Line {line}: {exc}") from exc
    if day.year not in YEARS:
        raise BillError(f"Line {line}: the year {day.year} cannot be right.")
    sums = bill.figures.setdefault((day, normal_name(model)), {})
    for name, value in figures.items():
        sums[name] = sums.get(name, Decimal(0)) + value
    if len(bill.figures) > MAX_KEYS:
        raise BillError("The file has too many days and models.")


def _number(row: Row, *names: str) -> Decimal:
    """The sum of these columns; empty ones count as nothing."""
    total = Decimal(0)
    for name in names:
        text = row.get(name, "") or "0"
        if _GROUPED.fullmatch(text):
            text = text.replace(",", "")
        try:
            value = Decimal(text)
        except InvalidOperation:
            value = Decimal("NaN")
        if not value.is_finite() or value.adjusted() >= MAX_DIGITS:
            raise ValueError(f"{name} is no number.")
        total += value
    return total


def _unix_day(row: Row) -> date:
    text = row["start_time"]
    if not re.fullmatch(r"\d{1,11}", text, re.ASCII):
        raise ValueError("start_time is no Unix time.")
    return datetime.fromtimestamp(int(text), UTC).date()


def _utc_day(row: Row) -> date:
    try:
        return date.fromisoformat(row["usage_date_utc"][:10])
    except ValueError as exc:
        raise ValueError("usage_date_utc is no date.") from exc


def _openai_usage(row: Row) -> Figures:
    return {
        "input_tokens": _number(row, "input_tokens"),
        "cached_tokens": _number(row, "input_cached_tokens"),
        "output_tokens": _number(row, "output_tokens"),
    }


def _openai_cost(row: Row) -> Figures:
    if row["amount_currency"].lower() not in ("usd", ""):
        raise ValueError("amount_currency is not usd.")
    return {"cost": _number(row, "amount_value")}


def _anthropic_usage(row: Row) -> Figures:
    read = "usage_input_tokens_cache_read"
    written = [f"usage_input_tokens_cache_write{which}" for which in ("", "_5m", "_1h")]
    plain = "usage_input_tokens_no_cache"
    return {
        "input_tokens": _number(row, plain, read, *written),
        "cached_tokens": _number(row, read),
        "output_tokens": _number(row, "usage_output_tokens"),
    }


_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_FORMATS = (
    _Format(
        "OpenAI",
        frozenset({"start_time", "model", "input_tokens", "output_tokens"}),
        _TOKENS,
        _unix_day,
        lambda row: row["model"],
        _openai_usage,
    ),
    _Format(
        "OpenAI",
        frozenset({"start_time", "amount_value", "amount_currency", "line_item"}),
        ("cost",),
        _unix_day,
        # "gpt-4o-2024-08-06, input" is one line of the model's cost.
        lambda row: row["line_item"].partition(",")[0],
        _openai_cost,
    ),
    _Format(
        "Anthropic",
        frozenset(
            {
                "usage_date_utc",
                "model_version",
                "usage_input_tokens_no_cache",
                "usage_output_tokens",
            }
        ),
        _TOKENS,
        _utc_day,
        lambda row: row["model_version"],
        _anthropic_usage,
    ),
    _Format(
        "Anthropic",
        frozenset({"usage_date_utc", "model", "cost_usd"}),
        ("cost",),
        _utc_day,
        lambda row: row["model"],
        lambda row: {"cost": _number(row, "cost_usd")},
    ),
)
