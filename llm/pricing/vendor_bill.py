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
from functools import partial

from django.utils.translation import gettext as _

MAX_FILE = 20_000_000  # bytes
MAX_LINES = 300_000
MAX_COLUMNS = 200  # exports have some twenty; each is read again in each line
MAX_KEYS = 20_000  # days times models
MAX_DIGITS = 15  # before the point
YEARS = range(2000, 2200)
MEASURES = ("input_tokens", "cached_tokens", "output_tokens", "cost")

Row = Mapping[str, str]
Figures = dict[str, Decimal]  # by measure
ReadNumber = Callable[[Row, str], Decimal]  # of a column
DELIMITERS = (",", ";", "\t")
_GROUPED = re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
#: As spreadsheet programs write numbers where the comma separates no columns.
_DECIMAL_COMMA = re.compile(r"\A(-?\d+),(\d+(?:[eE][+-]?\d+)?)\Z", re.ASCII)
#: A thousand times as much in one country as in another.
_AMBIGUOUS = re.compile(r"-?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
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
    measures: Mapping[str, tuple[str, ...]]  # with the columns whose sum each is
    day: Callable[[Row], date]
    model: Callable[[Row], str]


def read_bill(data: bytes) -> Bill:
    """Raises BillError."""
    if len(data) > MAX_FILE:
        raise BillError(_("The file is larger than 20 MB; export fewer days."))
    text = _decode(data)
    delimiter, form = _find_format(text)
    lines = _lines(text, delimiter)
    try:
        bill = Bill(form.vendor, tuple(form.measures))
        read_number = partial(_number, may_be_foreign=delimiter != ",")
        for row in _rows(lines):
            _add(bill, form, row, lines.line_num, read_number)
    except csv.Error as exc:
        raise _error_in(lines.line_num, f"{exc}.") from exc
    if not bill.figures:
        raise BillError(_("The file has no usage."))
    return bill


def _decode(data: bytes) -> str:
    """The text, without the line by which Excel names the delimiter."""
    # Excel saves "Unicode text" in UTF-16.
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as exc:
        raise BillError(_("The file is not UTF-8 text.")) from exc
    return re.sub(r"\Asep=.\r?\n", "", text)


def _find_format(text: str) -> tuple[str, _Format]:
    """The delimiter and the format whose columns the file has. Vendors write commas;
    a spreadsheet program may have saved the file with others."""
    error: csv.Error | None = None
    for delimiter in DELIMITERS:
        try:
            names = _lines(text, delimiter).fieldnames or ()
        except csv.Error as exc:
            error = error or exc  # names in quotes with another delimiter between them
            continue
        columns = frozenset(name.strip() for name in names)
        for form in _FORMATS:
            if form.columns <= columns and len(names) <= MAX_COLUMNS:
                return delimiter, form
    if error:
        raise _error_in(1, f"{error}.") from error
    text = _(
        "These are not the columns of a usage or cost export of OpenAI or Anthropic."
        " Upload the CSV file with the first line that the vendor wrote."
    )
    raise BillError(text)


def _error_in(line: int, problem: str) -> BillError:
    values = {"line": line, "problem": problem}
    return BillError(_("Line %(line)s: %(problem)s") % values)


def _lines(text: str, delimiter: str) -> csv.DictReader[str]:
    return csv.DictReader(
        io.StringIO(text, newline=""), restval="", strict=True, delimiter=delimiter
    )


def normal_name(model: str) -> str:
    """One name for `claude-sonnet-4-5-20250929` and `Claude Sonnet 4.5`."""
    name = re.sub(r"[\s._]+", "-", model.strip().lower())[:200]
    return _DATE_SUFFIX.sub("", name)


def _rows(lines: csv.DictReader[str]) -> Iterator[Row]:
    for number, row in enumerate(lines):
        if number >= MAX_LINES:
            text = _("The file has more than %(limit)s lines.")
            raise BillError(text % {"limit": f"{MAX_LINES:,}"})
        if None in row:
            raise _error_in(lines.line_num, _("it has too many columns."))
        yield {name.strip(): value.strip() for name, value in row.items()}


def _add(
    bill: Bill, form: _Format, row: Row, line: int, read_number: ReadNumber
) -> None:
    if not (model := form.model(row)):
        return  # a time without usage
    try:
        day, figures = form.day(row), _figures(form, row, read_number)
    except (ValueError, OverflowError, OSError) as exc:
        raise _error_in(line, str(exc)) from exc
    if day.year not in YEARS:
        problem = _("the year %(year)s cannot be right.") % {"year": day.year}
        raise _error_in(line, problem)
    sums = bill.figures.setdefault((day, normal_name(model)), {})
    for name, value in figures.items():
        sums[name] = sums.get(name, Decimal(0)) + value
    if len(bill.figures) > MAX_KEYS:
        raise BillError(_("The file has too many days and models."))


def _figures(form: _Format, row: Row, read_number: ReadNumber) -> Figures:
    if row.get("amount_currency", "").lower() not in ("usd", ""):
        raise ValueError(_("%(column)s is not usd.") % {"column": "amount_currency"})
    return {
        measure: sum((read_number(row, name) for name in names), Decimal(0))
        for measure, names in form.measures.items()
    }


def _number(row: Row, name: str, *, may_be_foreign: bool) -> Decimal:
    """What the column has; nothing counts as 0.

    `may_be_foreign`: a spreadsheet program may have written it as its country does.
    """
    text = row.get(name, "") or "0"
    is_count = name not in _COSTS
    if _AMBIGUOUS.fullmatch(text) and (may_be_foreign or (is_count and "." in text)):
        problem = _(
            "%(column)s is %(text)s, which may mean thousands or thousandths. Upload"
            " the file as the vendor wrote it."
        )
        raise ValueError(problem % {"column": name, "text": text})
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    elif may_be_foreign:
        text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value.adjusted() >= MAX_DIGITS:
        raise ValueError(_("%(column)s is no number.") % {"column": name})
    if is_count and value != value.to_integral_value():
        raise ValueError(_("%(column)s is no whole number.") % {"column": name})
    return value


def _unix_day(row: Row) -> date:
    text = row["start_time"]
    if not re.fullmatch(r"\d{1,11}", text, re.ASCII):
        raise ValueError(_("%(column)s is no Unix time.") % {"column": "start_time"})
    return datetime.fromtimestamp(int(text), UTC).date()


def _utc_day(row: Row) -> date:
    name = "usage_date_utc"
    try:
        return date.fromisoformat(row[name][:10])
    except ValueError as exc:
        raise ValueError(_("%(column)s is no date.") % {"column": name}) from exc


_COSTS = ("amount_value", "cost_usd")  # all other figures are counts
_CACHE_READ = "usage_input_tokens_cache_read"
_FORMATS = (
    _Format(
        "OpenAI",
        frozenset({"start_time", "model", "input_tokens", "output_tokens"}),
        {
            "input_tokens": ("input_tokens",),
            "cached_tokens": ("input_cached_tokens",),
            "output_tokens": ("output_tokens",),
        },
        _unix_day,
        lambda row: row["model"],
    ),
    _Format(
        "OpenAI",
        frozenset({"start_time", "amount_value", "amount_currency", "line_item"}),
        {"cost": ("amount_value",)},
        _unix_day,
        # "gpt-4o-2024-08-06, input" is one line of the model's cost.
        lambda row: row["line_item"].partition(",")[0],
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
        {
            "input_tokens": (
                "usage_input_tokens_no_cache",
                _CACHE_READ,
                "usage_input_tokens_cache_write",
                "usage_input_tokens_cache_write_5m",
                "usage_input_tokens_cache_write_1h",
            ),
            "cached_tokens": (_CACHE_READ,),
            "output_tokens": ("usage_output_tokens",),
        },
        _utc_day,
        lambda row: row["model_version"],
    ),
    _Format(
        "Anthropic",
        frozenset({"usage_date_utc", "model", "cost_usd"}),
        {"cost": ("cost_usd",)},
        _utc_day,
        lambda row: row["model"],
    ),
)
